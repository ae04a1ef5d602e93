/* Any bytes as a state record, as two texts to compare, as a name, as added text: no crash, and what comes out
 * keeps the rules. */
#include <stdlib.h>
#include <string.h>

#include "runtime/change/content.h"
#include "runtime/change/library.h"
#include "runtime/change/render.h"
#include "runtime/change/risk_impl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void check_record(const char *text, size_t n)
{
    CLEANUP(record_free_p) struct record r = { 0 };
    AUTOSTRV struct strv layers = { 0 };

    if (record_parse("/data", "aaaaaaaaaaaa", text, n, &r, NULL) < 0)
        return;
    must(r.project[0] == '/' && r.workspaces.n > 0);
    must(record_layers(&r, NULL, &layers, NULL) == 0 && layers.n == r.chain.n + 1);
    for (size_t i = 0; i < layers.n; i++)
        must(strspn(layers.v[i], "0123456789abcdef") == strlen(layers.v[i]) && *layers.v[i]);
    for (size_t i = 0; i < r.hide.n; i++)
        must(r.hide.v[i][0] != '/' && !str_starts(r.hide.v[i], "../"));
}

static void check_texts(const char *p, size_t n)
{
    const char *cut = memchr(p, 0xff, n);
    size_t old_len = cut ? (size_t)(cut - p) : n / 2;
    const char *new = p + old_len + (cut != NULL);
    size_t new_len = n - (size_t)(new - p);
    CLEANUP(text_diff_free_p) struct text_diff d = { 0 };
    AUTOSTR struct str none = STR_INIT, all = STR_INIT, patch = STR_INIT;
    AUTOFREE bool *take = NULL;

    if (text_diff(p, old_len, new, new_len, 3, &d, NULL) < 0)
        return;
    take = mem_zalloc(d.n_hunks + 1);
    text_apply(&d, take, &none);
    must(none.len == old_len && (!old_len || memcmp(none.p, p, old_len) == 0));
    memset(take, 1, d.n_hunks);
    text_apply(&d, take, &all);
    must(all.len == new_len && (!new_len || memcmp(all.p, new, new_len) == 0));
    for (size_t i = 0; i < d.n_hunks; i++)
        text_format_hunk(&d, &d.hunks[i], &patch);
}

static void check_name(const char *name)
{
    const struct risk_rule *hits[64];
    AUTOSTR struct str quoted = STR_INIT;
    size_t n = risk_for_path(name, hits, ARRAY_LEN(hits));

    must(n < ARRAY_LEN(hits));
    quote_name(&quoted, "a/", name);
    for (size_t i = 0; i < quoted.len; i++)
        must((unsigned char)quoted.p[i] >= ' ' && (unsigned char)quoted.p[i] < 0x7f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool started;
    AUTOFREE char *text = mem_zalloc(size + 1);
    struct content_found found = { 0 };

    if (!started)
        must(library_start(NULL) == 0);
    started = true;
    memcpy(text, data, size);
    check_record(text, size);
    check_texts(text, size);
    check_name(text);
    content_scan(text, size, &found);
    (void)content_tests(text, size);
    return 0;
}
