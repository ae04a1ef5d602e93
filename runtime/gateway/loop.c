#include "runtime/gateway/loop.h"

#include <string.h>

#include "base/clock.h"
#include "base/str.h"

enum { BATCH = 1024, CLOSING = 256 };

struct loop {
    int epoll;
    bool stop;
    uint64_t now;
    struct epoll_event ev[BATCH];
    int at, n; /* the event that is being served, and how many there are */
    struct timer **heap;
    uint32_t n_heap, cap;
    struct task tasks; /* head of a ring */
    unsigned n_tasks, turns;
    int closing[CLOSING];
    unsigned n_closing;
};

int loop_new(struct loop **ret, struct err **e)
{
    int fd = epoll_create1(EPOLL_CLOEXEC);
    if (fd < 0)
        return err_sys(e, "make an epoll descriptor");
    struct loop *l = mem_zalloc(sizeof(*l));
    l->epoll = fd;
    l->now = clock_ms(CLOCK_MONOTONIC);
    l->tasks.next = l->tasks.prev = &l->tasks;
    *ret = l;
    return 0;
}

static void close_all(struct loop *l)
{
    while (l->n_closing)
        close(l->closing[--l->n_closing]);
}

struct loop *loop_free(struct loop *l)
{
    if (!l)
        return NULL;
    close_all(l);
    close_p(&l->epoll);
    free(l->heap);
    free(l);
    return NULL;
}

void loop_stop(struct loop *l)
{
    l->stop = true;
}

uint64_t loop_now(const struct loop *l)
{
    return l->now;
}

/* --- descriptors --------------------------------------------------------------------------- */

int loop_set(struct loop *l, struct source *s, uint32_t events)
{
    struct epoll_event ev = { .events = events, .data.ptr = s };
    if (epoll_ctl(l->epoll, s->added ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, s->fd, &ev) < 0)
        return -1;
    s->added = true;
    return 0;
}

static void forget_events(struct loop *l, struct source *s)
{
    s->added = false;
    for (int i = l->at; i < l->n; i++)
        if (l->ev[i].data.ptr == s)
            l->ev[i].data.ptr = NULL;
}

void loop_del(struct loop *l, struct source *s)
{
    if (!s->added)
        return;
    epoll_ctl(l->epoll, EPOLL_CTL_DEL, s->fd, NULL);
    forget_events(l, s);
}

/* The kernel forgets what is closed, and nobody asks it for events before that. */
void loop_close(struct loop *l, struct source *s)
{
    if (s->fd < 0)
        return;
    if (l->n_closing == CLOSING) {
        loop_del(l, s);
        close_p(&s->fd);
        return;
    }
    forget_events(l, s);
    l->closing[l->n_closing++] = TAKE_FD(s->fd);
}

/* --- timers: a binary heap that knows where each timer is ------------------------------------ */

static void heap_put(struct loop *l, uint32_t i, struct timer *t)
{
    l->heap[i] = t;
    t->pos = i + 1;
}

static void heap_up(struct loop *l, uint32_t i, struct timer *t)
{
    while (i > 0 && l->heap[(i - 1) / 2]->at > t->at) {
        heap_put(l, i, l->heap[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    heap_put(l, i, t);
}

static void heap_down(struct loop *l, uint32_t i, struct timer *t)
{
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child >= l->n_heap)
            break;
        if (child + 1 < l->n_heap && l->heap[child + 1]->at < l->heap[child]->at)
            child++;
        if (l->heap[child]->at >= t->at)
            break;
        heap_put(l, i, l->heap[child]);
        i = child;
    }
    heap_put(l, i, t);
}

void loop_disarm(struct loop *l, struct timer *t)
{
    if (!t->pos)
        return;
    uint32_t i = t->pos - 1;
    t->pos = 0;
    struct timer *last = l->heap[--l->n_heap];
    if (last == t)
        return;
    if (i > 0 && l->heap[(i - 1) / 2]->at > last->at)
        heap_up(l, i, last);
    else
        heap_down(l, i, last);
}

void loop_arm(struct loop *l, struct timer *t, uint64_t ms)
{
    loop_disarm(l, t);
    if (l->n_heap == l->cap) {
        l->cap = l->cap ? l->cap * 2 : 64;
        l->heap = realloc(l->heap, l->cap * sizeof(*l->heap));
        if (!l->heap)
            abort();
    }
    t->at = l->now + ms;
    heap_up(l, l->n_heap++, t);
}

static void run_timers(struct loop *l)
{
    while (!l->stop && l->n_heap && l->heap[0]->at <= l->now) {
        struct timer *t = l->heap[0];
        loop_disarm(l, t);
        /* One that arms itself for this very moment must not keep the loop here. */
        uint64_t now = l->now++;
        t->on(t);
        l->now = now;
    }
}

/* --- tasks ----------------------------------------------------------------------------------- */

void loop_later(struct loop *l, struct task *t)
{
    if (t->next)
        return;
    t->next = &l->tasks;
    t->prev = l->tasks.prev;
    t->prev->next = t;
    l->tasks.prev = t;
    l->n_tasks++;
}

void loop_forget(struct loop *l, struct task *t)
{
    if (!t->next)
        return;
    t->prev->next = t->next;
    t->next->prev = t->prev;
    t->next = t->prev = NULL;
    l->n_tasks--;
}

unsigned loop_turns(const struct loop *l)
{
    return l->turns;
}

/* Only what is queued now: what these queue comes after the next look at the descriptors. A mark that moves
 * with the ring says where now ends. */
static void run_tasks(struct loop *l)
{
    struct task mark = { 0 };
    l->turns = l->n_tasks;
    if (l->tasks.next == &l->tasks)
        return;
    loop_later(l, &mark);
    while (l->tasks.next != &mark) {
        struct task *t = l->tasks.next;
        loop_forget(l, t);
        t->on(t);
    }
    loop_forget(l, &mark);
}

/* --- rounds ---------------------------------------------------------------------------------- */

static int wait_ms(const struct loop *l)
{
    if (l->tasks.next != &l->tasks)
        return 0;
    if (!l->n_heap)
        return -1;
    uint64_t at = l->heap[0]->at;
    return at <= l->now ? 0 : at - l->now > 3600000 ? 3600000 : (int)(at - l->now);
}

static int round_of(struct loop *l, struct err **e)
{
    int n = epoll_wait(l->epoll, l->ev, BATCH, wait_ms(l));
    if (n < 0 && errno != EINTR)
        return err_sys(e, "wait for events");
    l->now = clock_ms(CLOCK_MONOTONIC);
    l->n = n > 0 ? n : 0;
    for (l->at = 0; l->at < l->n;) {
        struct epoll_event *ev = &l->ev[l->at++];
        struct source *s = ev->data.ptr;
        if (s)
            s->on(s, ev->events);
    }
    l->n = 0;
    run_timers(l);
    run_tasks(l);
    close_all(l);
    return 0;
}

int loop_run(struct loop *l, bool once, struct err **e)
{
    l->stop = false;
    do {
        if (round_of(l, e) < 0)
            return -ERR_FAILED;
    } while (!once && !l->stop);
    return 0;
}
