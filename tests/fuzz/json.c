/* Any bytes: the reader refuses them or gives a tree that is valid UTF-8 throughout, and what the
 * writer makes of that tree reads back as the same tree. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void emit(struct jsonw *w, const char *key, const struct json *j)
{
    switch (j->type) {
    case JSON_NULL:
        jw_null(w, key);
        break;
    case JSON_BOOL:
        jw_bool(w, key, j->boolean);
        break;
    case JSON_NUMBER: /* compared as text */
    case JSON_STRING:
        if (!utf8_valid(j->string, strlen(j->string)))
            abort();
        jw_str(w, key, j->string);
        break;
    case JSON_ARRAY:
        jw_arr(w, key);
        for (size_t i = 0; i < j->n; i++)
            emit(w, NULL, j->items[i]);
        jw_end_arr(w);
        break;
    case JSON_OBJECT:
        jw_obj(w, key);
        for (size_t i = 0; i < j->n; i++) {
            if (json_get(j, j->keys[i]) != j->items[i])
                abort();
            emit(w, j->keys[i], j->items[i]);
        }
        jw_end_obj(w);
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTOJSON struct json *j = NULL, *again = NULL;
    AUTOJSONW struct jsonw w = { 0 }, w2 = { 0 };
    struct err *e = NULL;
    AUTOFREE char *text = mem_dup(data, size);
    int rc = json_parse(text, size, &j, &e);

    if ((rc == 0) != (j != NULL) || (rc == 0) != (e == NULL))
        abort();
    err_free(e);
    if (rc < 0)
        return 0;
    w.pretty = size & 1;
    emit(&w, NULL, j);
    if (json_parse(w.out.p, w.out.len, &again, NULL) < 0)
        abort();
    w2.pretty = w.pretty;
    emit(&w2, NULL, again);
    if (w.out.len != w2.out.len || memcmp(w.out.p, w2.out.p, w.out.len) != 0)
        abort();
    return 0;
}
