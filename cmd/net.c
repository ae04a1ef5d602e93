/* cmd/net.c - petri net and petri port: what a sandbox may reach, what it tried, where its ports are. */
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/json.h"
#include "cmd/config.h"
#include "cmd/life.h"
#include "runtime/sandbox/control.h"
#include "runtime/sandbox/net_rules.h"

/* The sandbox that -s names, or the only word where words are names, or the project's own. */
static int find_box(struct life *f, const char *word, char **ret_id, struct err **e)
{
    int rc = paths_find(&f->paths, e);
    return rc < 0 ? rc : sandbox_find(&f->paths, word ? word : f->sandbox, NULL, ret_id, e);
}

/* Flags and at most one word, a sandbox's name: its id. 0, or the status after it said what is wrong. */
static int take_box(struct life *f, const struct cmd *c, int argc, char **argv, char **ret_id)
{
    struct err *e = NULL;

    if (life_parse(f, c, argc, argv) < 0)
        return c->usage_exit;
    if (f->n_words > 1)
        return cmd_usage(c, "one sandbox at a time");
    return find_box(f, f->n_words ? f->words[0] : NULL, ret_id, &e) < 0 ? life_fail(e, f->json) : 0;
}

static void print_rules(const char *word, const struct net_rules *l)
{
    for (size_t i = 0; i < l->n; i++)
        printf("%-8s %s\n", i ? "" : word, l->v[i].text);
}

static void print_policy(const struct net_policy *p)
{
    char size[24];

    printf("policy   %s%s\n", net_mode_word(p->mode),
           p->mode == NET_LIMITED     ? ": public hosts only"
           : p->mode == NET_ALLOWLIST ? ": what is allowed below"
           : p->mode == NET_FULL      ? ": public hosts, every port"
                                      : "");
    if (p->mode == NET_LIMITED || p->mode == NET_ALLOWLIST) {
        printf("ports   ");
        for (size_t i = 0; i < p->n_ports; i++)
            printf(" %u", p->ports[i]);
        printf("%s\n", p->n_ports ? "" : " 80 443");
    }
    print_rules("allow", &p->allow);
    print_rules("deny", &p->deny);
    if (p->rate) {
        format_size(p->rate, size);
        printf("rate     %s a second\n", size);
    }
    if (p->bytes) {
        format_size(p->bytes, size);
        printf("bytes    %s in all\n", size);
    }
}

static uint64_t number(const struct json *j, const char *key)
{
    uint64_t v = 0;
    json_u64(j, key, &v);
    return v;
}

static void print_counts(const struct json *net)
{
    const struct json *c = json_get(net, "counts");
    char in[24], out[24];

    format_size(number(c, "bytes_in"), in);
    format_size(number(c, "bytes_out"), out);
    printf("so far   %llu allowed, %llu denied, %llu open; %s in, %s out\n",
           (unsigned long long)number(c, "allowed"), (unsigned long long)number(c, "denied"),
           (unsigned long long)number(c, "open"), in, out);
}

/* Running: as its keeper has it; stopped: as it will start. */
static int get_policy(const struct paths *paths, const char *id, struct net_policy *ret,
                      struct json **ret_net, struct err **e)
{
    CLEANUP(err_free_p) struct err *why = NULL;
    AUTOSTATE struct state s = { 0 };
    int rc = sandbox_ask(paths, id, "{\"op\":\"net\"}", ret_net, &why);

    if (rc == 0)
        return net_policy_from_json(json_get(json_get(*ret_net, "network"), "rules"), ret, e);
    if (why->code != ERR_STOPPED) {
        *e = TAKE_PTR(why);
        return rc;
    }
    rc = state_read(paths, id, &s, e);
    return rc < 0 ? rc : net_of_record(&s, ret, e);
}

static int show(const struct life *f, const char *id)
{
    CLEANUP(net_policy_free_p) struct net_policy p = { 0 };
    AUTOJSON struct json *live = NULL;
    AUTOJSONW struct jsonw w = { 0 };
    struct err *e = NULL;

    if (get_policy(&f->paths, id, &p, &live, &e) < 0)
        return life_fail(e, f->json);
    if (!f->json) {
        print_policy(&p);
        if (live)
            print_counts(json_get(live, "network"));
        return 0;
    }
    if (live) {
        jw_json(&w, NULL, json_get(live, "network"));
    } else {
        jw_obj(&w, NULL);
        jw_str(&w, "policy", net_mode_word(p.mode));
        net_policy_json(&w, "rules", &p);
        jw_end_obj(&w);
    }
    puts(w.out.p);
    return 0;
}

static int show_run(const struct cmd *c, int argc, char **argv)
{
    CLEANUP(life_free_p) struct life f = { 0 };
    AUTOFREE char *id = NULL;
    int status = take_box(&f, c, argc, argv, &id);

    return status ? status : show(&f, id);
}

static void print_line(const char *line, bool json)
{
    AUTOJSON struct json *j = NULL;
    AUTOSTR struct str to = STR_INIT;
    const char *name, *addr, *why, *allow;
    char in[24], out[24];
    bool deny;

    if (json) {
        puts(line);
        return;
    }
    if (json_parse(line, strlen(line), &j, NULL) < 0)
        return;
    name = json_str(j, "name");
    addr = json_str(j, "addr");
    why = json_str(j, "why");
    allow = json_str(j, "allow");
    deny = str_eq(json_str(j, "verdict"), "deny");
    if (name)
        str_add_escaped(&to, name, strlen(name));
    if (addr)
        str_addf(&to, name ? " (%s)" : "%s", addr);
    if (number(j, "port"))
        str_addf(&to, " port %llu", (unsigned long long)number(j, "port"));
    printf("%s  %-5s  %s  %s", json_str(j, "time"), json_str(j, "verdict"), json_str(j, "proto"),
           to.p ? to.p : "-");
    if (deny) {
        printf("  %s", why ? why : json_str(j, "rule"));
        printf(allow ? "; petri net allow %s\n" : "\n", allow);
    } else {
        format_size(number(j, "in"), in);
        format_size(number(j, "out"), out);
        printf("  %s in, %s out, by %s\n", in, out, json_str(j, "rule"));
    }
}

static int log_run(const struct cmd *c, int argc, char **argv)
{
    CLEANUP(life_free_p) struct life f = { 0 };
    AUTOFREE char *id = NULL, *dir = NULL, *path = NULL, *old = NULL;
    AUTOJSON struct json *settled = NULL;
    int status = take_box(&f, c, argc, argv, &id);

    if (status)
        return status;
    /* what just happened is in the log once the gateway has answered */
    (void)sandbox_ask(&f.paths, id, "{\"op\":\"net\"}", &settled, NULL);
    dir = state_dir(&f.paths, id);
    path = path_join(dir, "net.jsonl");
    old = str_printf("%s.1", path);
    life_lines(old, false, print_line, f.json);
    life_lines(path, f.follow, print_line, f.json);
    return 0;
}

/* What a lock forbids at a start is forbidden later, too. */
static int may_allow(const struct life *f, const char *id, const struct strv *rules)
{
    AUTOSTATE struct state s = { 0 };
    AUTOSTRV struct strv flags = { 0 };
    struct configured how = { .json = f->json, .quiet = true, .status = 1 };
    struct err *e = NULL;

    if (state_read(&f->paths, id, &s, &e) < 0)
        return life_fail(e, f->json);
    how.workspace = s.project;
    for (size_t i = 0; i < rules->n; i++)
        strv_addf(&flags, "allow-domain=%s", rules->v[i]);
    return configured_check(&how, &f->paths, &flags);
}

static int rules_run(const struct cmd *c, int argc, char **argv)
{
    CLEANUP(life_free_p) struct life f = { 0 };
    AUTOSTRV struct strv rules = { 0 };
    AUTOFREE char *id = NULL;
    bool allow = strcmp(c->name, "allow") == 0;
    struct err *e = NULL;
    int status;

    if (life_parse(&f, c, argc, argv) < 0)
        return c->usage_exit;
    if (!f.n_words)
        return cmd_usage(c, "what? like: petri net %s pypi.org", c->name);
    for (int i = 0; i < f.n_words; i++)
        strv_add(&rules, f.words[i]);
    if (find_box(&f, NULL, &id, &e) < 0)
        return life_fail(e, f.json);
    if (allow && (status = may_allow(&f, id, &rules)))
        return status;
    if (sandbox_net_rules(&f.paths, id, allow, &rules, &e) < 0)
        return life_fail(e, f.json);
    return f.json ? show(&f, id) : 0;
}

static int port_run(const struct cmd *c, int argc, char **argv)
{
    CLEANUP(net_policy_free_p) struct net_policy p = { 0 };
    CLEANUP(life_free_p) struct life f = { 0 };
    AUTOJSON struct json *live = NULL;
    AUTOJSONW struct jsonw w = { 0 };
    AUTOFREE char *id = NULL;
    struct err *e = NULL;
    int status = take_box(&f, c, argc, argv, &id);

    if (status)
        return status;
    if (get_policy(&f.paths, id, &p, &live, &e) < 0)
        return life_fail(e, f.json);
    jw_arr(&w, NULL);
    for (size_t i = 0; i < p.n_publish; i++) {
        char host[INET6_ADDRSTRLEN];
        bool six = p.publish[i].host.family == AF_INET6;
        addr_text(&p.publish[i].host, host);
        if (!f.json)
            printf("%u -> %s%s%s:%u%s\n", p.publish[i].port, six ? "[" : "", host, six ? "]" : "",
                   p.publish[i].host_port, live ? "" : "  (stopped)");
        jw_obj(&w, NULL);
        jw_u64(&w, "port", p.publish[i].port);
        jw_str(&w, "host", host);
        jw_u64(&w, "host_port", p.publish[i].host_port);
        jw_end_obj(&w);
    }
    jw_end_arr(&w);
    if (f.json)
        puts(w.out.p);
    return 0;
}

static const struct opt show_opts[] = {
    { "sandbox", 's', "NAME", "the sandbox; else the project's own", "sandbox" },
    { "json", 0, NULL, "print one object", NULL },
};
static const struct opt log_opts[] = {
    { "follow", 'f', NULL, "go on with what comes", NULL },
    { "sandbox", 's', "NAME", "the sandbox; else the project's own", "sandbox" },
    { "json", 0, NULL, "print an object a line", NULL },
};

#define NET_SUB(word, text, use, func, list)                                                       \
    {                                                                                              \
        .name = word, .summary = text, .usage = use, .opts = list, .n_opts = ARRAY_LEN(list),      \
        .usage_exit = 2, .run = func,                                                              \
    }
static const struct cmd show_cmd =
    NET_SUB("show", "what a sandbox may reach, and counts", "[SANDBOX]", show_run, show_opts);
static const struct cmd log_cmd =
    NET_SUB("log", "what it reached and what was denied", "[-f] [SANDBOX]", log_run, log_opts);
static const struct cmd allow_cmd = NET_SUB("allow", "let a sandbox reach something, from now on",
                                            "[-s SANDBOX] RULE...", rules_run, show_opts);
static const struct cmd deny_cmd = NET_SUB("deny", "keep a sandbox from something, from now on",
                                           "[-s SANDBOX] RULE...", rules_run, show_opts);
static const struct cmd *const net_subs[] = { &show_cmd, &log_cmd, &allow_cmd, &deny_cmd, NULL };

const struct cmd cmd_net = {
    .name = "net",
    .summary = "what a sandbox may reach, and what it tried",
    .usage = "show|log|allow|deny ...",
    .about = "A rule is NAME, *.NAME (everything below it), NAME:PORT, an address or a range like "
             "10.1.2.0/24, with :PORT or without. Deny beats allow. Private addresses are reached "
             "only where a rule names their range: a name that leads to one is not enough.",
    .examples = "petri net log\twhat was reached and what was denied\n"
                "petri net allow pypi.org '*.pythonhosted.org'\tfrom now on",
    .subs = net_subs,
    .usage_exit = 2,
    .run = cmd_run_sub,
};
const struct cmd cmd_port = {
    .name = "port",
    .summary = "list published ports",
    .usage = "[SANDBOX]",
    .opts = show_opts,
    .n_opts = ARRAY_LEN(show_opts),
    .complete = "sandbox",
    .usage_exit = 2,
    .run = port_run,
};
