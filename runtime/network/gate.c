#include "runtime/network/gate.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/paths.h"

enum {
    PACKET_MAX = 64 << 10,
    PING_MS = 2000,
    HUNG_MS = 5000,
    RESTARTS_MAX = 16,
    RESTART_MS = 4000, /* dead is closed: whoever could end it has no network until then */
    MAX_PUBLISH = 64,
    WHY_MAX = 512,
};

bool gate_needed(const struct net_policy *p)
{
    return p && (p->mode != NET_NONE || p->n_publish > 0);
}

/* --- published ports ----------------------------------------------------------------------------- */

static int listen_on(const struct net_publish *p, int *ret, struct err **e)
{
    struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(p->host_port) };
    struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons(p->host_port) };
    bool six = p->host.family == AF_INET6;
    AUTOCLOSE int s = socket(p->host.family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    char text[INET6_ADDRSTRLEN];
    int one = 1;

    memcpy(&v4.sin_addr, p->host.b, 4);
    memcpy(&v6.sin6_addr, p->host.b, 16);
    if (s >= 0 && setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0 &&
        setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0 && /* whom it accepts, too */
        (!six || setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one) == 0) &&
        bind(s, six ? (struct sockaddr *)&v6 : (struct sockaddr *)&v4,
             six ? sizeof v6 : sizeof v4) == 0 &&
        listen(s, 512) == 0) {
        *ret = TAKE_FD(s);
        return 0;
    }
    addr_text(&p->host, text);
    if (errno == EADDRINUSE)
        return err_new(e, ERR_BUSY, "-p: port %u of %s is in use on this machine; choose another",
                       p->host_port, text);
    return err_sys(e, "-p: listen on port %u of %s", p->host_port, text);
}

int gate_open(struct gate *g, const struct net_policy *p, struct err **e)
{
    int rc = 0;

    if (!gate_needed(p))
        return 0;
    if (p->n_publish > MAX_PUBLISH)
        return err_new(e, ERR_INVALID, "-p: at most %d ports can be published", MAX_PUBLISH);
    if (!(g->helper = paths_helper("petri-gateway", e)))
        return -ERR_NOT_FOUND;
    g->policy = p;
    g->listeners = mem_zalloc((p->n_publish + 1) * sizeof *g->listeners);
    for (size_t i = 0; i < p->n_publish; i++)
        g->listeners[i] = -1;
    for (size_t i = 0; i < p->n_publish && rc == 0; i++)
        rc = listen_on(&p->publish[i], &g->listeners[i], e);
    return rc;
}

/* --- talk ---------------------------------------------------------------------------------------- */

static int send_packet(struct gate *g, const struct jsonw *w, const int *fds, size_t n)
{
    char room[CMSG_SPACE(MAX_PUBLISH * sizeof(int))] = { 0 };
    struct iovec iov = { w->out.p, w->out.len };
    struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };

    if (n) {
        m.msg_control = room;
        m.msg_controllen = CMSG_SPACE(n * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(n * sizeof(int));
        memcpy(CMSG_DATA(c), fds, n * sizeof(int));
    }
    return sendmsg(g->control, &m, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -1 : 0;
}

static int send_type(struct gate *g, const char *type, const int *fds, size_t n)
{
    AUTOJSONW struct jsonw w = { 0 };
    jw_obj(&w, NULL);
    jw_str(&w, "type", type);
    if (strcmp(type, "policy") == 0) {
        net_policy_json(&w, "policy", g->policy);
        jw_u64(&w, "used", g->before.bytes_in + g->before.bytes_out);
    }
    jw_arr(&w, "ports");
    for (size_t i = 0; strcmp(type, "publish") == 0 && i < n; i++) {
        char text[INET6_ADDRSTRLEN];
        addr_text(&g->policy->publish[i].host, text);
        jw_obj(&w, NULL);
        jw_str(&w, "host", text);
        jw_u64(&w, "host_port", g->policy->publish[i].host_port);
        jw_u64(&w, "port", g->policy->publish[i].port);
        jw_end_obj(&w);
    }
    jw_end_arr(&w);
    if (strcmp(type, "ping") == 0)
        jw_u64(&w, "n", g->asked);
    jw_end_obj(&w);
    return send_packet(g, &w, fds, n);
}

/* --- the process --------------------------------------------------------------------------------- */

/* The host's way to the world is all it needs to know. */
static char **proxies(void)
{
    static const char *const names[] = { "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY",
                                         "http_proxy", "https_proxy", "all_proxy", "no_proxy" };
    char **env = mem_zalloc((ARRAY_LEN(names) + 1) * sizeof *env);
    size_t n = 0;
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (getenv(names[i]))
            env[n++] = str_printf("%s=%s", names[i], getenv(names[i]));
    return env;
}

static int spawn(struct gate *g, int child_end)
{
    AUTOFREE char **env = proxies();
    char *argv[] = { (char[]){ "petri-gateway" }, NULL };
    posix_spawn_file_actions_t fa;
    posix_spawnattr_t at;
    sigset_t none, all;
    int rc;

    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&fa);
    posix_spawnattr_init(&at);
    posix_spawnattr_setflags(&at, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(&at, &none);
    posix_spawnattr_setsigdefault(&at, &all);
    /* away from 0 to 3 first, whatever number it has */
    posix_spawn_file_actions_adddup2(&fa, child_end, 100);
    for (int i = 0; i < 3; i++)
        posix_spawn_file_actions_addopen(&fa, i, "/dev/null", O_RDWR, 0);
    posix_spawn_file_actions_adddup2(&fa, 100, 3);
    posix_spawn_file_actions_addclosefrom_np(&fa, 4);
    posix_spawn_file_actions_addchdir_np(&fa, "/");
    rc = posix_spawn(&g->pid, g->helper, &fa, &at, argv, env);
    posix_spawn_file_actions_destroy(&fa);
    posix_spawnattr_destroy(&at);
    for (size_t i = 0; env[i]; i++)
        free(env[i]);
    if (rc)
        g->pid = 0;
    return rc;
}

static int start(struct gate *g, struct err **e)
{
    int pair[2], rc;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_sys(e, "socketpair");
    rc = spawn(g, pair[1]);
    close(pair[1]);
    g->control = pair[0];
    g->asked = g->answered = 0;
    if (rc) {
        errno = rc;
        return err_sys(e, "start '%s'", g->helper);
    }
    if (send_type(g, "policy", NULL, 0) < 0 ||
        (g->policy->n_publish && send_type(g, "publish", g->listeners, g->policy->n_publish) < 0))
        return err_sys(e, "talk to the gateway");
    return 0;
}

/* Its end is certain, but takes milliseconds: a packet socket goes only after all cpus have let go of it. Nobody
 * waits for that. */
static void end(struct gate *g)
{
    close_p(&g->control);
    if (g->dying > 0)
        (void)RETRY(waitpid(g->dying, NULL, 0));
    if (g->pid > 0)
        kill(g->pid, SIGKILL);
    g->dying = g->pid;
    g->pid = 0;
}

int gate_feed(struct gate *g, int *ret_agent, struct err **e)
{
    int pair[2];

    *ret_agent = -1;
    if (!g->policy)
        return 0;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_sys(e, "socketpair");
    close_p(&g->feed);
    g->feed = pair[0];
    *ret_agent = pair[1];
    return 0;
}

int gate_walls(struct gate *g, struct err **e)
{
    int rc;

    if (!g->policy)
        return 0;
    g->again_ms = 0;
    if (g->pid == 0 && (rc = start(g, e)) < 0)
        return rc;
    return send_type(g, "walls", &g->feed, 1) < 0 ? err_sys(e, "talk to the gateway") : 0;
}

static void replace(struct gate *g)
{
    g->again_ms = 0;
    if (start(g, NULL) < 0 || send_type(g, "walls", &g->feed, 1) < 0)
        g->failed = true;
}

/* Whatever it did, the sandbox has no way out at this moment; gate_tick() gives it one again. */
static void died(struct gate *g)
{
    struct gate_counts *b = &g->before, *n = &g->now;

    end(g);
    b->allowed += n->allowed;
    b->denied += n->denied;
    b->bytes_in += n->bytes_in;
    b->bytes_out += n->bytes_out;
    b->malformed += n->malformed;
    b->lost += n->lost;
    *n = (struct gate_counts){ 0 };
    if (g->policy->stop || g->restarts++ >= RESTARTS_MAX)
        g->failed = true;
    else
        g->again_ms = clock_ms(CLOCK_MONOTONIC) + RESTART_MS;
}

/* One that does not say that it has the new policy may still follow the old one: then another one is started,
 * which knows no other. */
void gate_changed(struct gate *g)
{
    bool sent = g->pid > 0 && send_type(g, "policy", NULL, 0) == 0;

    if (sent)
        gate_settle(g, HUNG_MS);
    if (g->pid > 0 && (!sent || g->asked != g->answered))
        died(g);
    if (g->again_ms)
        replace(g);
}

static void take_counts(struct gate *g, const struct json *j)
{
    struct gate_counts *c = &g->now;
    json_u64(j, "n", &g->answered);
    json_u64(j, "open", &c->open);
    json_u64(j, "allowed", &c->allowed);
    json_u64(j, "denied", &c->denied);
    json_u64(j, "bytes_in", &c->bytes_in);
    json_u64(j, "bytes_out", &c->bytes_out);
    json_u64(j, "malformed", &c->malformed);
    json_u64(j, "lost", &c->lost);
}

static void take_why(struct gate *g, const char *text)
{
    struct str s = STR_INIT;
    size_t n = text ? strlen(text) : 0;

    str_add_escaped(&s, text, n < WHY_MAX ? n : WHY_MAX);
    free(g->why);
    g->why = str_take(&s);
}

/* One packet: 1; nothing there: 0; the end: -1. It reads what hostile code sends, so its words are taken as text. */
static int read_one(struct gate *g)
{
    AUTOFREE char *buf = mem_zalloc(PACKET_MAX);
    AUTOJSON struct json *j = NULL;
    ssize_t n = recv(g->control, buf, PACKET_MAX, MSG_DONTWAIT);
    const char *type;

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n <= 0)
        return -1;
    if (json_parse(buf, (size_t)n, &j, NULL) < 0 || !(type = json_str(j, "type")))
        return 1;
    if (strcmp(type, "pong") == 0)
        take_counts(g, j);
    else if (strcmp(type, "log") == 0 && g->on_line && gate_line_fine(j))
        g->on_line(g->arg, j);
    else if (strcmp(type, "failed") == 0)
        take_why(g, json_str(j, "why"));
    return 1;
}

void gate_serve(struct gate *g)
{
    int rc = 1;
    for (int i = 0; g->pid > 0 && i < 256 && rc > 0; i++)
        rc = read_one(g);
    if (rc < 0)
        died(g);
}

void gate_tick(struct gate *g)
{
    uint64_t now = clock_ms(CLOCK_MONOTONIC);

    if (g->dying > 0 && waitpid(g->dying, NULL, WNOHANG) != 0)
        g->dying = 0;
    if (g->again_ms && now >= g->again_ms)
        replace(g);
    if (g->pid <= 0 || g->failed)
        return;
    gate_serve(g);
    if (g->pid > 0 && g->asked != g->answered && now - g->asked_ms > HUNG_MS) {
        died(g);
    } else if (g->asked == g->answered && now - g->asked_ms > PING_MS) {
        g->asked++;
        g->asked_ms = now;
        (void)send_type(g, "ping", NULL, 0);
    }
}

void gate_settle(struct gate *g, int ms)
{
    uint64_t now = clock_ms(CLOCK_MONOTONIC), until = now + (uint64_t)ms;

    if (g->pid <= 0)
        return;
    if (g->asked ==
        g->answered) /* one that does not answer is not given more time by being asked again */
        g->asked_ms = now;
    g->asked++;
    if (send_type(g, "ping", NULL, 0) < 0)
        return;
    while (g->pid > 0 && g->answered != g->asked && now < until) {
        struct pollfd p = { .fd = g->control, .events = POLLIN };
        (void)poll(&p, 1, (int)(until - now));
        gate_serve(g);
        now = clock_ms(CLOCK_MONOTONIC);
    }
}

void gate_counts(const struct gate *g, struct gate_counts *ret)
{
    const struct gate_counts *b = &g->before, *n = &g->now;
    *ret = (struct gate_counts){
        .open = n->open,
        .allowed = b->allowed + n->allowed,
        .denied = b->denied + n->denied,
        .bytes_in = b->bytes_in + n->bytes_in,
        .bytes_out = b->bytes_out + n->bytes_out,
        .malformed = b->malformed + n->malformed,
        .lost = b->lost + n->lost,
    };
}

void gate_close(struct gate *g)
{
    end(g);
    g->again_ms = 0;
    close_p(&g->feed);
    for (size_t i = 0; g->policy && i < g->policy->n_publish; i++)
        close_p(&g->listeners[i]);
    free_p(&g->listeners);
    free_p(&g->helper);
    free_p(&g->why);
    g->policy = NULL;
}
