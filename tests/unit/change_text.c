/* tests/unit/change_text.c - line diffs: hunks put together again, patches as git writes them. */
#include "tests/unit/check.h"

#include "runtime/change/library.h"
#include "runtime/change/text.h"

static const struct {
    const char *old, *new, *patch;
} patches[] = {
    { "", "", "" },
    { "a\n", "a\n", "" },
    { "", "a\n", "@@ -0,0 +1 @@\n+a\n" },
    { "a\n", "", "@@ -1 +0,0 @@\n-a\n" },
    { "a\n", "b\n", "@@ -1 +1 @@\n-a\n+b\n" },
    { "a", "a\n", "@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n" },
    { "a\n", "a", "@@ -1 +1 @@\n-a\n+a\n\\ No newline at end of file\n" },
    { "a\nb", "c\nb", "@@ -1,2 +1,2 @@\n-a\n+c\n b\n\\ No newline at end of file\n" },
    { "1\n2\n3\n4\n5\n6\n7\n8\n9\n", "1\n2\n3\n4\nX\n6\n7\n8\n9\n",
      "@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+X\n 6\n 7\n 8\n" },
    { "a\r\n", "b\r\n", "@@ -1 +1 @@\n-a\r\n+b\r\n" },
    { "\n", "\n\n", "@@ -1 +1,2 @@\n \n+\n" },
};

static void check_patches(void)
{
    for (size_t i = 0; i < ARRAY_LEN(patches); i++) {
        CLEANUP(text_diff_free_p) struct text_diff d = { 0 };
        AUTOSTR struct str out = STR_INIT;
        CHECK(text_diff(patches[i].old, strlen(patches[i].old), patches[i].new,
                        strlen(patches[i].new), 3, &d, NULL) == 0,
              "row %zu", i);
        for (size_t k = 0; k < d.n_hunks; k++)
            text_format_hunk(&d, &d.hunks[k], &out);
        CHECK_STR(out.p ? out.p : "", patches[i].patch);
    }
}

static bool same(const struct str *s, const char *p, size_t n)
{
    return s->len == n && (n == 0 || memcmp(s->p, p, n) == 0);
}

/* Every choice of hunks is a text; none of them is the old one, all of them the new one. */
static void check_apply(const char *old, size_t old_len, const char *new, size_t new_len)
{
    CLEANUP(text_diff_free_p) struct text_diff d = { 0 };
    AUTOSTR struct str none = STR_INIT, all = STR_INIT, odd = STR_INIT, back = STR_INIT;
    AUTOFREE bool *take = NULL;

    if (text_diff(old, old_len, new, new_len, 1, &d, NULL) < 0) {
        CHECK(0, "text_diff");
        return;
    }
    take = mem_zalloc(d.n_hunks + 1);
    text_apply(&d, take, &none);
    CHECK(same(&none, old, old_len), "%zu hunks, none taken", d.n_hunks);
    memset(take, 1, d.n_hunks);
    text_apply(&d, take, &all);
    CHECK(same(&all, new, new_len), "%zu hunks, all taken", d.n_hunks);
    for (size_t i = 0; i < d.n_hunks; i++)
        take[i] = i % 2;
    text_apply(&d, take, &odd);
    /* what was left out is what still differs */
    CLEANUP(text_diff_free_p) struct text_diff rest = { 0 };
    CHECK(text_diff(odd.p ? odd.p : "", odd.len, new, new_len, 1, &rest, NULL) == 0, "rest");
    CHECK(rest.n_hunks <= d.n_hunks, "%zu of %zu hunks left", rest.n_hunks, d.n_hunks);
}

static void check_random(void)
{
    unsigned seed = 7;

    for (int round = 0; round < 400; round++) {
        AUTOSTR struct str a = STR_INIT, b = STR_INIT;
        for (int line = 0; line < rand_r(&seed) % 60; line++) {
            int what = rand_r(&seed) % 8, word = rand_r(&seed) % 5;
            if (what != 1)
                str_addf(&a, "line %d\n", word);
            if (what > 1)
                str_addf(&b, "line %d\n", word);
            if (what == 0)
                str_addf(&b, "new %d\n", word);
        }
        if (round % 3 == 0)
            str_add(&a, "end");
        if (round % 5 == 0)
            str_add(&b, "end");
        check_apply(a.p ? a.p : "", a.len, b.p ? b.p : "", b.len);
    }
}

/* A line of half a megabyte, a file of one line more: no hang, no copy of everything. */
static void check_long(void)
{
    const size_t n = 500000;
    AUTOFREE char *a = mem_zalloc(n + 2), *b = mem_zalloc(n + 2);
    CLEANUP(text_diff_free_p) struct text_diff d = { 0 };

    memset(a, 'x', n);
    memset(b, 'x', n);
    b[n] = 'y';
    CHECK(text_diff(a, n, b, n + 1, 3, &d, NULL) == 0 && d.n_hunks == 1 && d.added == 1, "long");
    check_apply(a, n, b, n + 1);
}

int main(void)
{
    char id[TEXT_BLOB_HEX + 1];

    CHECK(library_start(NULL) == 0, "libgit2");
    check_patches();
    check_random();
    check_long();
    CHECK(!text_is_binary("a\n", 2) && text_is_binary("a\0b", 3) && !text_is_binary("", 0),
          "binary");
    text_blob_id("hello\n", 6, id);
    CHECK_STR(id, "ce013625030ba8dba906f756967f9e9ca394464a");
    return check_done();
}
