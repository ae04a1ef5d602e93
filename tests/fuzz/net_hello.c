/* Any bytes as the start of a TLS connection: a verdict never changes with more bytes, and a name is canonical. */
#include <stdlib.h>
#include <string.h>

#include "runtime/gateway/hello.h"
#include "runtime/network/policy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
    if (!ok)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char name[256], before[256] = "", again[NET_NAME_SIZE];
    enum hello was = HELLO_MORE;
    size_t step = size > 2000 ? size / 50 : 1 + size / 200;

    for (size_t n = 0;; n = size - n < step ? size : n + step) {
        uint8_t *copy = malloc(n + !n); /* exact, for the address sanitizer */
        enum hello v;

        if (n)
            memcpy(copy, data, n);
        v = hello_read(copy, n, name);
        free(copy);
        if (was != HELLO_MORE)
            must(v == was && strcmp(name, before) == 0);
        must(n < HELLO_MAX || v != HELLO_MORE);
        must(v == HELLO_NAME ? name[0] != '\0' : v == HELLO_ECH || !name[0]);
        if (name[0])
            must(net_name(name, strlen(name), again) == 0 && strcmp(name, again) == 0);
        memcpy(before, name, sizeof before);
        was = v;
        if (n == size)
            return 0;
    }
}
