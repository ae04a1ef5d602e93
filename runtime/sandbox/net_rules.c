/* runtime/sandbox/net_rules.c - rules of a sandbox's network that are added after its start. */
#include "runtime/sandbox/net_rules.h"

#include <string.h>

#include "runtime/sandbox/control.h"

void net_remember(struct state *s, const char *mode, bool allow, const struct strv *rules)
{
    bool has = false;

    for (size_t i = 0; i < s->options.n; i++)
        has |= str_starts(s->options.v[i], "network=");
    if (!has) /* a rule alone would mean the policy allowlist */
        strv_addf(&s->options, "network=%s", mode);
    for (size_t i = 0; i < rules->n; i++) {
        AUTOFREE char *word =
            str_printf("%s=%s", allow ? "allow-domain" : "deny-domain", rules->v[i]);
        if (!strv_has(&s->options, word))
            strv_add(&s->options, word);
    }
}

int net_add_rules(struct net_policy *p, bool allow, const struct strv *rules, struct err **e)
{
    if (p->mode == NET_NONE)
        return err_new(e, ERR_INVALID,
                       "the sandbox has --network none; petri restart --network allowlist "
                       "--allow-domain NAME gives it one");
    for (size_t i = 0; i < rules->n; i++) {
        struct net_rule rule = { 0 };
        int rc =
            net_rule_parse(allow ? "petri net allow" : "petri net deny", rules->v[i], &rule, e);
        if (rc < 0)
            return rc;
        (void)net_rules_add(allow ? &p->allow : &p->deny, &rule);
    }
    return net_policy_check(p, e);
}

int net_of_record(const struct state *s, struct net_policy *ret, struct err **e)
{
    CLEANUP(options_free_p) struct options o = { 0 };
    options_restore(&o, &s->options);
    return net_policy_make(&o, ret, e);
}

int sandbox_net_rules(const struct paths *paths, const char *id, bool allow,
                      const struct strv *rules, struct err **e)
{
    CLEANUP(net_policy_free_p) struct net_policy p = { 0 };
    AUTOSTATE struct state s = { 0 };
    AUTOJSONW struct jsonw w = { 0 };
    AUTOJSON struct json *answer = NULL;
    CLEANUP(err_free_p) struct err *why = NULL;
    AUTOCLOSE int lock = -1;
    int rc;

    jw_obj(&w, NULL);
    jw_str(&w, "op", allow ? "net_allow" : "net_deny");
    jw_strv(&w, "rules", rules);
    jw_end_obj(&w);
    rc = sandbox_ask(paths, id, w.out.p, &answer, &why);
    if (rc < 0 && why->code != ERR_STOPPED) {
        *e = TAKE_PTR(why);
        return rc;
    }
    if (rc == 0)
        return 0;
    if ((rc = state_lock(paths, id, &lock, e)) < 0 || (rc = state_read(paths, id, &s, e)) < 0 ||
        (rc = net_of_record(&s, &p, e)) < 0 || (rc = net_add_rules(&p, allow, rules, e)) < 0)
        return rc;
    net_remember(&s, net_mode_word(p.mode), allow, rules);
    return state_write(paths, &s, e);
}
