#include "image/host/etc_priv.h"

#include <ctype.h>
#include <string.h>

#define FIRST_ORDINARY 1000
#define NOBODY 65534

void etc_accounts_free_p(struct etc_accounts *a)
{
    str_reset(&a->passwd);
    str_reset(&a->group);
    str_reset(&a->shadow);
    str_reset(&a->gshadow);
}

/* Splits a line at the colons, in place; the number of fields, at most max. */
static size_t fields(char *line, char **f, size_t max)
{
    size_t n = 0;
    for (char *p = line; p && n < max; n++) {
        f[n] = p;
        p = strchr(p, ':');
        if (p)
            *p++ = '\0';
    }
    return n;
}

static bool id_of(const char *s, uint64_t *ret)
{
    return isdigit((unsigned char)s[0]) && parse_uint(s, UINT32_MAX - 1, ret, NULL) == 0;
}

static bool system_id(uint64_t id)
{
    return id < FIRST_ORDINARY || id == NOBODY;
}

static bool name_ok(const char *s)
{
    if (!s || !s[0] || strlen(s) > 64 || s[0] == '-' || s[0] == '+')
        return false;
    for (; *s; s++)
        if (!isalnum((unsigned char)*s) && !strchr("._-$@", *s))
            return false;
    return true;
}

/* A path as a field of passwd. */
static const char *field_or(const char *s, const char *fallback)
{
    return s && s[0] == '/' && !strchr(s, ':') && !etc_name_odd(s) ? s : fallback;
}

static void shadow_line(struct str *s, const char *name)
{
    str_addf(s, "%s:*:19000:0:99999:7:::\n", name);
}

static void passwd_file(const char *host, const struct host_user *u, const char *name,
                        struct etc_accounts *a, struct strv *kept)
{
    AUTOFREE char *copy = str_dup(host ? host : "");
    AUTOFREE char *mine = str_printf("%s:x:%u:%u:%s:%s:%s\n", name, u->uid, u->gid, name,
                                     field_or(u->home, "/"), field_or(u->shell, "/bin/sh"));
    char *save = NULL;
    bool root = u->uid == 0;

    for (char *l = strtok_r(copy, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
        char *f[7];
        uint64_t uid, gid;
        if (fields(l, f, 7) != 7 || !name_ok(f[0]) || !id_of(f[2], &uid) || !id_of(f[3], &gid) ||
            !system_id(uid) || uid == u->uid || strcmp(f[0], name) == 0 || strv_has(kept, f[0]))
            continue;
        root |= uid == 0;
        strv_add(kept, f[0]);
        str_addf(&a->passwd, "%s:x:%u:%u:%s:%s:%s\n", f[0], (unsigned)uid, (unsigned)gid, f[4],
                 field_or(f[5], "/nonexistent"), field_or(f[6], "/usr/sbin/nologin"));
        shadow_line(&a->shadow, f[0]);
    }
    if (!root) {
        strv_add(kept, "root");
        str_add(&a->passwd, "root:x:0:0:root:/root:/bin/sh\n");
        shadow_line(&a->shadow, "root");
    }
    strv_add(kept, name);
    str_add(&a->passwd, mine);
    shadow_line(&a->shadow, name);
}

/* The members of a group that exist inside; ordinary users are in no group but their own. */
static void members(struct str *s, char *list, const struct strv *kept, const char *user)
{
    char *save = NULL;
    bool first = true;
    for (char *m = strtok_r(list, ",", &save); m; m = strtok_r(NULL, ",", &save)) {
        if (!strv_has(kept, m) || strcmp(m, user) == 0)
            continue;
        str_addf(s, "%s%s", first ? "" : ",", m);
        first = false;
    }
}

static void group_line(struct etc_accounts *a, const char *name, unsigned gid, const char *list)
{
    str_addf(&a->group, "%s:x:%u:%s\n", name, gid, list);
    str_addf(&a->gshadow, "%s:*::%s\n", name, list);
}

static void group_file(const char *host, const struct host_user *u, const char *user,
                       struct etc_accounts *a, const struct strv *kept)
{
    AUTOFREE char *copy = str_dup(host ? host : "");
    AUTOSTRV struct strv seen = { 0 };
    bool have_gid = false, have_root = false;
    char *save = NULL;

    a->shadow_gid = (gid_t)-1;
    for (char *l = strtok_r(copy, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
        AUTOSTR struct str list = STR_INIT;
        char *f[4];
        uint64_t gid;
        if (fields(l, f, 4) != 4 || !name_ok(f[0]) || !id_of(f[2], &gid) || !system_id(gid) ||
            strv_has(&seen, f[0]))
            continue;
        strv_add(&seen, f[0]);
        have_gid |= gid == u->gid;
        have_root |= gid == 0;
        if (strcmp(f[0], "shadow") == 0)
            a->shadow_gid = (gid_t)gid;
        str_add(&list, "");
        members(&list, f[3], kept, user);
        group_line(a, f[0], (unsigned)gid, list.p);
    }
    if (!have_root) {
        group_line(a, "root", 0, "");
        strv_add(&seen, "root");
        have_gid |= u->gid == 0;
    }
    if (!have_gid) {
        AUTOFREE char *other = str_printf("group%u", u->gid);
        group_line(a, strv_has(&seen, user) ? other : user, u->gid, "");
    }
}

void etc_accounts(const char *passwd, const char *group, const struct host_user *u,
                  struct etc_accounts *ret)
{
    AUTOSTRV struct strv kept = { 0 };
    const char *name = name_ok(u->name) ? u->name : u->uid == 0 ? "root" : "user";

    /* a stranger's record must not get the name root, nor root another */
    if (u->uid != 0 && strcmp(name, "root") == 0)
        name = "user";
    *ret = (struct etc_accounts){ 0 };
    passwd_file(passwd, u, name, ret, &kept);
    group_file(group, u, name, ret, &kept);
}
