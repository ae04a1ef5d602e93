#include "runtime/gateway/limits.h"

#include <sys/resource.h>

#include "base/str.h"

enum {
    CONNECTIONS = 10240,
    PIPES = 512,
    SPARE = 64,      /* descriptors for everything else */
    REFILL_MS = 10,  /* while somebody waits */
    BURST_MIN = 4096 /* bytes; less would cut every packet in pieces */
};

struct limits {
    struct gw *gw;
    unsigned open, max, pipes;
    uint64_t rate, total, used;
    int64_t tokens, burst;
    uint64_t filled; /* when */
    uint64_t rest;   /* of a byte, in thousandths */
    struct limits_wait line;
    struct timer refill;
    struct task spent;
    bool told;
    void (*on_spent)(struct gw *);
};

static void on_refill(struct timer *t);

static void on_spent(struct task *t)
{
    struct limits *l = CONTAINER(t, struct limits, spent);
    if (l->on_spent)
        l->on_spent(l->gw);
}

int limits_new(struct gw *gw, struct err **e)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) < 0)
        return err_sys(e, "read the limit of open files");
    struct limits *l = mem_zalloc(sizeof(*l));
    rlim_t n = r.rlim_cur > SPARE + 16 ? r.rlim_cur - SPARE : 16;
    l->gw = gw;
    l->pipes = n / 8 < PIPES ? (unsigned)(n / 8) : PIPES;
    n = (n - 2 * l->pipes) / 2;
    l->max = n < CONNECTIONS ? (unsigned)n : CONNECTIONS;
    l->line.next = l->line.prev = &l->line;
    l->refill.on = on_refill;
    l->spent.on = on_spent;
    gw->limits = l;
    return 0;
}

void limits_free(struct gw *gw)
{
    struct limits *l = gw->limits;
    if (!l)
        return;
    loop_disarm(gw->loop, &l->refill);
    loop_forget(gw->loop, &l->spent);
    free(l);
    gw->limits = NULL;
}

void limits_on_spent(struct gw *gw, void (*spent)(struct gw *))
{
    gw->limits->on_spent = spent;
}

unsigned limits_max(const struct gw *gw)
{
    return gw->limits->max;
}

unsigned limits_pipes(const struct gw *gw)
{
    return gw->limits->pipes;
}

bool limits_enter(struct gw *gw)
{
    if (gw->limits->open >= gw->limits->max)
        return false;
    gw->limits->open++;
    return true;
}

void limits_leave(struct gw *gw)
{
    gw->limits->open--;
}

unsigned limits_open(const struct gw *gw)
{
    return gw->limits->open;
}

/* --- total ----------------------------------------------------------------------------------- */

bool limits_spent(const struct gw *gw)
{
    return gw->limits->total && gw->limits->used >= gw->limits->total;
}

static void check_spent(struct limits *l)
{
    if (!limits_spent(l->gw))
        l->told = false;
    else if (!l->told) {
        l->told = true;
        loop_later(l->gw->loop, &l->spent);
    }
}

void limits_used(struct gw *gw, uint64_t bytes)
{
    gw->limits->used += bytes;
    check_spent(gw->limits);
}

static void count(struct limits *l, size_t n, bool in)
{
    l->used += n;
    if (in)
        l->gw->counts.bytes_in += n;
    else
        l->gw->counts.bytes_out += n;
    check_spent(l);
}

/* --- rate ------------------------------------------------------------------------------------ */

static void fill(struct limits *l)
{
    uint64_t now = loop_now(l->gw->loop);
    uint64_t ms = now > l->filled ? now - l->filled : 0;
    if (!ms)
        return;
    l->filled = now;
    if (ms > 1000)
        ms = 1000;
    uint64_t thousandths = l->rest + ms * l->rate;
    l->tokens += (int64_t)(thousandths / 1000);
    l->rest = thousandths % 1000;
    if (l->tokens > l->burst)
        l->tokens = l->burst;
}

/* Small enough that many in line get their turn within a burst, large enough to be worth a system call. */
static size_t quantum(const struct limits *l)
{
    int64_t q = l->burst / 4;
    return q > LIMITS_QUANTUM ? LIMITS_QUANTUM : (size_t)q;
}

void limits_policy(struct gw *gw)
{
    struct limits *l = gw->limits;
    uint64_t rate = gw->policy.rate;
    if (rate > INT64_MAX / 2000)
        rate = 0; /* more than any machine moves */
    l->total = gw->policy.bytes;
    if (rate != l->rate) {
        l->rate = rate;
        l->burst = rate / 10 > BURST_MIN ? (int64_t)(rate / 10) : BURST_MIN;
        l->tokens = l->burst;
        l->filled = loop_now(gw->loop);
        loop_arm(gw->loop, &l->refill, 0); /* nobody waits longer than the new rate asks for */
    }
    check_spent(l);
}

static void leave_line(struct limits_wait *w)
{
    w->prev->next = w->next;
    w->next->prev = w->prev;
    w->next = w->prev = NULL;
}

static void stand_in_line(struct limits *l, struct limits_wait *w)
{
    if (w->next)
        return;
    w->next = &l->line;
    w->prev = l->line.prev;
    w->prev->next = w;
    l->line.prev = w;
    if (!l->refill.pos)
        loop_arm(l->gw->loop, &l->refill, REFILL_MS);
}

static void on_refill(struct timer *t)
{
    struct limits *l = CONTAINER(t, struct limits, refill);
    fill(l);
    int64_t q = (int64_t)quantum(l);
    while (l->line.next != &l->line && (l->tokens >= q || !l->rate)) {
        struct limits_wait *w = l->line.next;
        leave_line(w);
        w->grant = (size_t)q;
        l->tokens -= q;
        w->on(w);
    }
    if (l->line.next != &l->line)
        loop_arm(l->gw->loop, &l->refill, REFILL_MS);
}

size_t limits_ask(struct gw *gw, size_t want, struct limits_wait *w)
{
    struct limits *l = gw->limits;
    if (l->total) {
        if (l->used >= l->total)
            return 0; /* everything is about to be closed */
        if (want > l->total - l->used)
            want = (size_t)(l->total - l->used);
    }
    if (!l->rate && !w->grant)
        return want;
    if (!w->grant) {
        if (l->line.next == &l->line && !w->next) {
            fill(l);
            if (l->tokens >= (int64_t)quantum(l)) {
                w->grant = quantum(l);
                l->tokens -= (int64_t)w->grant;
            }
        }
        if (!w->grant) {
            stand_in_line(l, w);
            return 0;
        }
    }
    size_t n = want < w->grant ? want : w->grant;
    l->tokens += (int64_t)(w->grant - n);
    w->grant = 0;
    return n;
}

void limits_cancel(struct gw *gw, struct limits_wait *w)
{
    gw->limits->tokens += (int64_t)w->grant;
    w->grant = 0;
    if (w->next)
        leave_line(w);
}

void limits_moved(struct gw *gw, size_t granted, size_t moved, bool in)
{
    if (gw->limits->rate)
        gw->limits->tokens += (int64_t)(granted - moved);
    count(gw->limits, moved, in);
}

/* Packets do not wait: they may go a burst into debt, which those in line wait for. */
bool limits_packet(struct gw *gw, size_t n, bool in)
{
    struct limits *l = gw->limits;
    if (limits_spent(gw))
        return false;
    if (l->rate) {
        fill(l);
        if (l->tokens <= -l->burst)
            return false;
        l->tokens -= (int64_t)n;
    }
    count(l, n, in);
    return true;
}
