/* runtime/sandbox/live_net.c - the network of a sandbox that stays: its log, and what its keeper is asked about it.
 *
 * Owns:  DATA/sandboxes/ID/net.jsonl, a line for each verdict of the gateway; the one before as .1 when long.
 */
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/fs.h"
#include "runtime/sandbox/events.h"
#include "runtime/sandbox/live.h"
#include "runtime/sandbox/net_rules.h"
#include "runtime/sandbox/run.h"

enum { LOG_MAX = 8 << 20 };

/* What `petri net allow` needs to mean this one; NULL: nothing, it is the project's own. */
static const char *box_word(const struct live *l)
{
    return l->state.own ? NULL : l->state.name ? l->state.name : l->state.id;
}

static void write_line(struct live *l, const struct json *line)
{
    AUTOFREE char *dir = state_dir(l->paths, l->state.id), *path = path_join(dir, "net.jsonl");
    AUTOJSONW struct jsonw w = { 0 };

    jw_obj(&w, NULL);
    jw_time(&w, "time");
    for (size_t i = 0; i < line->n; i++)
        if (strcmp(line->keys[i], "type") != 0)
            jw_json(&w, line->keys[i], line->items[i]);
    jw_end_obj(&w);
    str_addc(&w.out, '\n');
    fs_log(path, w.out.p, w.out.len, LOG_MAX);
}

void live_net_line(void *arg, const struct json *line)
{
    struct live *l = arg;
    const struct denied *d = denied_note(&l->denied, line);

    write_line(l, line);
    l->active_ms = clock_ms(CLOCK_BOOTTIME);
    if (d) {
        AUTOJSONW struct jsonw w = { 0 };
        jw_members(&w);
        denied_json(&w, d, l->plan->net, box_word(l));
        events_add(l->paths, "net_denied", &l->state, &w);
        l->events |= EVENT_NET_DENIED;
    }
}

void live_net_json(struct live *l, struct jsonw *w)
{
    struct gate_counts c;

    gate_settle(&l->box.gate, 200);
    gate_counts(&l->box.gate, &c);
    jw_obj(w, "network");
    jw_str(w, "policy", net_mode_word(l->plan->net->mode));
    jw_int(w, "gateway_pid", l->box.gate.pid);
    jw_u64(w, "gateway_restarts", l->box.gate.restarts);
    jw_obj(w, "counts");
    jw_u64(w, "open", c.open);
    jw_u64(w, "allowed", c.allowed);
    jw_u64(w, "denied", c.denied);
    jw_u64(w, "bytes_in", c.bytes_in);
    jw_u64(w, "bytes_out", c.bytes_out);
    jw_u64(w, "malformed", c.malformed);
    jw_u64(w, "log_lines_lost", c.lost);
    jw_end_obj(w);
    net_policy_json(w, "rules", l->plan->net);
    jw_end_obj(w);
}

void live_net_show(struct live *l, struct asker *a)
{
    AUTOJSONW struct jsonw w = { 0 };
    jw_obj(&w, NULL);
    live_net_json(l, &w);
    jw_end_obj(&w);
    live_answer(a, w.out.p);
}

/* What was refused since then (CLOCK_BOOTTIME), and which limits were hit, for the result of a command. */
void live_net_denied(struct live *l, struct asker *a, const struct json *r)
{
    static const char *const limits[] = { "oom", "pids", "disk" };
    AUTOJSONW struct jsonw w = { 0 };
    struct cgroup_stats s;
    uint64_t since = 0;

    json_u64(r, "since_ms", &since);
    gate_settle(&l->box.gate, 200);
    live_look_limits(l, &s);
    jw_obj(&w, NULL);
    jw_arr(&w, "limits");
    for (size_t i = 0; i < ARRAY_LEN(limits); i++)
        if (l->hit_ms[i] && l->hit_ms[i] >= since)
            jw_str(&w, NULL, limits[i]);
    jw_end_arr(&w);
    jw_arr(&w, "denied");
    for (size_t i = 0; i < l->denied.n; i++) {
        if (l->denied.v[i].last_ms < since)
            continue;
        jw_obj(&w, NULL);
        jw_str(&w, "type", "net_denied");
        denied_json(&w, &l->denied.v[i], l->plan->net, box_word(l));
        jw_end_obj(&w);
    }
    jw_end_arr(&w);
    jw_end_obj(&w);
    live_answer(a, w.out.p);
}

/* All of them or none. */
void live_net_rules(struct live *l, struct asker *a, const struct json *r, bool allow)
{
    CLEANUP(net_policy_free_p) struct net_policy next = { 0 };
    struct net_policy *now = l->plan->net;
    AUTOSTRV struct strv rules = { 0 };
    struct err *e = NULL;

    json_strings(json_arr(r, "rules"), &rules);
    if (net_policy_copy(now, &next) == 0 && net_add_rules(&next, allow, &rules, &e) == 0) {
        AUTOSTRV struct strv before = { 0 };
        for (size_t i = 0; i < l->state.options.n; i++)
            strv_add(&before, l->state.options.v[i]);
        net_remember(&l->state, net_mode_word(now->mode), allow, &rules);
        if (state_write(l->paths, &l->state, &e) < 0) {
            struct strv failed = l->state.options;
            l->state.options = before;
            before = failed;
        } else {
            net_policy_free_p(now);
            *now = next;
            next = (struct net_policy){ 0 };
            gate_changed(&l->box.gate);
            gate_settle(&l->box.gate, 1000);
            denied_free_p(&l->denied);
        }
    }
    if (e)
        live_answer_err(a, e);
    else
        live_net_show(l, a);
}
