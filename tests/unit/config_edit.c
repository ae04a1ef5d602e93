/* Setting keys in generated texts: every comment is there afterwards, the value too, and ends of line are alike. */
#include "tests/unit/check.h"

#include "runtime/config/config.h"
#include "runtime/config/jsonc.h"

struct maker {
    struct str out;
    uint64_t seed;
    const char *nl;
    unsigned comments;
};

static unsigned pick(struct maker *m, unsigned n)
{
    m->seed = m->seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(m->seed >> 33) % n;
}

/* White space and comments, with all in them that could be taken for something else. */
static void gap(struct maker *m)
{
    for (unsigned n = pick(m, 4); n > 1; n--) {
        unsigned kind = pick(m, 5);
        if (kind == 0)
            str_addf(&m->out, "/* %u, \"x\" } ] // */", m->comments++);
        else if (kind == 1)
            str_addf(&m->out, "// %u ], \"y /*%s", m->comments++, m->nl);
        else
            str_addf(&m->out, "%s%s",
                     kind == 2   ? m->nl
                     : kind == 3 ? "\t"
                                 : " ",
                     kind == 2 ? "  " : "");
    }
}

static void word(struct maker *m, const char *text)
{
    gap(m);
    str_add(&m->out, text);
}

/* An object or list with `inside`, or with nothing but comments. */
static void group(struct maker *m, const char *inside, const char *brackets)
{
    bool any = pick(m, 2);

    str_addc(&m->out, brackets[0]);
    word(m, any ? inside : "");
    word(m, any && pick(m, 2) ? "," : "");
    gap(m);
    str_addc(&m->out, brackets[1]);
}

static void member(struct maker *m, const char *name, const char *inside, const char *brackets,
                   bool last)
{
    word(m, name);
    word(m, ":");
    gap(m);
    group(m, inside, brackets);
    word(m, last && pick(m, 2) ? "" : ",");
}

static void generate(struct maker *m)
{
    word(m, "{");
    word(m, "\"sandbox\"");
    word(m, ":");
    word(m, "{");
    for (unsigned n = pick(m, 4), i = 0; i < n; i++) {
        if (i == 0)
            member(m, "\"resources\"", "\"cpus\": 2", "{}", n == 1);
        else if (i == 1)
            member(m, "\"bypass_tools\"", "\"a//b\\\"\", /* in */ \"c\"", "[]", n == 2);
        else
            member(m, "\"limits\"", "\"total\": { /* none */ }", "{}", true);
    }
    word(m, "}");
    word(m, pick(m, 2) ? "," : "");
    word(m, "}");
    gap(m);
}

/* All comments, one behind the other. */
static void comments(const char *p, struct str *ret)
{
    while (*p) {
        const char *from = p;
        if (*p == '"') {
            for (p++; *p != '"'; p++)
                p += *p == '\\';
            p++;
        } else if (p[0] == '/' && p[1] == '*') {
            p = strstr(p + 2, "*/") + 2;
            str_addn(ret, from, (size_t)(p - from));
        } else if (p[0] == '/') {
            p += strcspn(p, "\r\n");
            str_addn(ret, from, (size_t)(p - from));
        } else {
            p++;
        }
    }
}

static bool other_newline(const char *text, bool crlf)
{
    for (const char *p = text; (p = strchr(p, '\n')); p++)
        if ((p > text && p[-1] == '\r') != crlf)
            return true;
    return false;
}

static const struct {
    const char *key, *value;
} sets[] = {
    { "resources.pids", "99" },
    { "bypass_tools", "[\"n\", \"m\"]" },
    { "image", "\"b\"" },
    { "limits.total.memory", "\"1G\"" },
    { "resources.pids", "100" },
    { "bypass_tools", "[]" },
    { "network.deny", "[\"x.example\"]" },
};

/* The piece of text that a key has. */
static char *value_of(const struct jsonc *j, const char *key)
{
    AUTOFREE char *path = str_dup(key);
    uint32_t at = jsonc_get(j, 0, "sandbox");

    for (char *save = NULL, *w = strtok_r(path, ".", &save); w && at;
         w = strtok_r(NULL, ".", &save))
        at = jsonc_get(j, at, w);
    if (!at || j->nodes[at].type != JSON_ARRAY)
        return at ? jsonc_text(j, at) : NULL;
    AUTOSTR struct str list = STR_INIT;
    for (uint32_t i = jsonc_first(j, at); i; i = jsonc_after(j, at, i)) {
        AUTOFREE char *item = jsonc_text(j, i);
        str_addf(&list, "%s\"%s\"", list.len ? ", " : "", item);
    }
    return str_printf("[%s]", list.p ? list.p : "");
}

static void set_all(const char *text, bool crlf)
{
    AUTOFREE char *now = str_dup(text);
    AUTOSTR struct str before = STR_INIT;

    comments(text, &before);
    for (size_t i = 0; i < ARRAY_LEN(sets); i++) {
        AUTOSTR struct str out = STR_INIT, after = STR_INIT;
        CLEANUP(jsonc_free_p) struct jsonc j = { 0 };
        struct err *e = NULL;
        int rc =
            config_edit(now, strlen(now), (size_t)key_find(sets[i].key), sets[i].value, &out, &e);
        CHECK(rc == 0 && jsonc_parse(out.p, out.len, &j, &e) == 0, "%s: %s", e ? e->msg : "", now);
        err_free(e);
        if (check_failed)
            return;
        comments(out.p, &after);
        CHECK_STR(after.p ? after.p : "", before.p ? before.p : "");
        AUTOFREE char *value = value_of(&j, sets[i].key);
        AUTOFREE char *plain = str_dup(sets[i].value);
        if (plain[0] == '"') {
            memmove(plain, plain + 1, strlen(plain));
            plain[strlen(plain) - 1] = '\0';
        }
        CHECK_STR(value, plain);
        CHECK(!strchr(text, '\n') || !other_newline(out.p, crlf), "ends of line: %s", out.p);
        free(now);
        now = str_take(&out);
    }
}

int main(void)
{
    for (uint64_t seed = 0; seed < 400 && !check_failed; seed++) {
        struct maker m = { .seed = seed, .nl = seed % 2 ? "\r\n" : "\n" };
        generate(&m);
        set_all(m.out.p, seed % 2);
        if (check_failed)
            fprintf(stderr, "seed %llu: %s\n", (unsigned long long)seed, m.out.p);
        str_free_p(&m.out);
    }
    return check_done();
}
