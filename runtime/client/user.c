/* runtime/client/user.c - users by name, as the sandbox itself knows them. */
#include "runtime/client/client.h"

static bool number(const char *s, uint32_t *ret)
{
    uint64_t n;
    if (parse_uint(s, UINT32_MAX - 1, &n, NULL) < 0)
        return false;
    *ret = (uint32_t)n;
    return true;
}

/* The line of `who` (a name, or a number as text) in passwd, its colons turned into ends. */
static bool find_line(char *text, const char *who, bool by_number, char *field[7])
{
    for (char *save = NULL, *l = strtok_r(text, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
        int n = 0;
        for (char *p = l; p && n < 7; n++) {
            field[n] = p;
            if ((p = strchr(p, ':')))
                *p++ = '\0';
        }
        if (n == 7 && strcmp(field[by_number ? 2 : 0], who) == 0)
            return true;
    }
    return false;
}

int client_user(struct petri_sandbox *s, const char *user, uint32_t *ret_uid, uint32_t *ret_gid,
                struct strv *env, struct petri_error *e)
{
    AUTOFREE char *who = str_dup(user), *text = NULL;
    char *group = strchr(who, ':'), *field[7];
    bool by_number;
    size_t n;

    if (group)
        *group++ = '\0';
    if (!*who || (group && !number(group, ret_gid)))
        return client_fail(e, "invalid",
                           "user '%s': a name or number, or UID:GID with a number for the group",
                           user);
    by_number = number(who, ret_uid);
    if (petri_fs_read(s, "/etc/passwd", 1 << 20, &text, &n, e) < 0)
        return -1;
    if (!find_line(text, who, by_number, field))
        return by_number ? 0
                         : client_fail(e, "not_found",
                                       "user '%s' is not in the sandbox's "
                                       "/etc/passwd",
                                       who);
    if (!number(field[2], ret_uid) || (!group && !number(field[3], ret_gid)))
        return client_fail(e, "corrupt",
                           "user '%s': its line in the sandbox's /etc/passwd has no "
                           "numbers",
                           who);
    strv_addf(env, "HOME=%s", field[5]);
    strv_addf(env, "USER=%s", field[0]);
    strv_addf(env, "LOGNAME=%s", field[0]);
    return 0;
}
