/* Any bytes: the reader refuses them with a place, or gives a document whose walk visits every node once
 * and whose strings are UTF-8. The first byte chooses a key that is then set: the result reads back, and
 * setting it again changes nothing; taken out it is gone. */
#include <stdlib.h>
#include <string.h>

#include "runtime/config/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint32_t walk(const struct jsonc *j, uint32_t node)
{
    uint32_t n = 1;
    bool object = j->nodes[node].type == JSON_OBJECT;
    AUTOFREE char *text = jsonc_text(j, node);

    if (!utf8_valid(text, strlen(text)) || j->nodes[node].end > j->len ||
        j->nodes[node].start >= j->nodes[node].end)
        abort();
    for (uint32_t i = jsonc_first(j, node); i; i = jsonc_after(j, node, i)) {
        AUTOFREE char *key = object ? jsonc_text(j, i) : NULL;
        if (object && jsonc_get(j, node, key) != i + 1)
            abort();
        n += object + walk(j, i + object);
    }
    return n;
}

/* What is taken out is gone, and the rest still reads. */
static void unset_one(const char *text, size_t size, size_t key, bool there)
{
    AUTOSTR struct str out = STR_INIT, again = STR_INIT;
    bool found = false;

    if (config_unset(text, size, key, &out, &found, NULL) < 0 || (there && !found) ||
        config_unset(out.p ? out.p : "", out.len, key, &again, &found, NULL) < 0 || found)
        abort();
}

static void set_one(const char *text, size_t size, size_t key)
{
    AUTOSTR struct str out = STR_INIT, again = STR_INIT;
    CLEANUP(jsonc_free_p) struct jsonc j = { 0 };

    if (config_edit(text, size, key, "\"fuzzed\"", &out, NULL) < 0)
        return;
    if (jsonc_parse(out.p, out.len, &j, NULL) < 0)
        abort();
    /* setting it again changes nothing */
    if (config_edit(out.p, out.len, key, "\"fuzzed\"", &again, NULL) < 0 || again.len != out.len ||
        memcmp(again.p, out.p, out.len) != 0)
        abort();
    unset_one(out.p, out.len, key, true);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    CLEANUP(jsonc_free_p) struct jsonc j = { 0 };
    struct err *e = NULL;
    int rc;

    if (size < 1 || size > 1 << 16)
        return 0;
    AUTOFREE char *text = mem_zalloc(size); /* one byte more than is read: files end like this */
    memcpy(text, data + 1, size - 1);
    rc = jsonc_parse(text, size - 1, &j, &e);
    if ((rc == 0) != (e == NULL) || (e && !strchr(e->msg, ':')))
        abort();
    err_free(e);
    if (rc < 0)
        return 0;
    if (walk(&j, 0) != j.n)
        abort();
    set_one(text, size - 1, data[0] % n_config_keys);
    unset_one(text, size - 1, data[0] % n_config_keys, false);
    return 0;
}
