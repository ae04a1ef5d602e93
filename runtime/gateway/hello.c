#include "runtime/gateway/hello.h"

#include <stdbool.h>
#include <string.h>

#include "runtime/network/policy.h"

enum {
    RECORD_HANDSHAKE = 22,
    RECORD_HEADER = 5,
    RECORD_MAX = 16384,
    CLIENT_HELLO = 1,
    HANDSHAKE_HEADER = 4,
    EXT_SERVER_NAME = 0,
    NAME_HOST = 0,
    /* Encrypted hellos: the final number, the drafts before it, and their ancestor. */
    EXT_ECH_FIRST_DRAFT = 0xfe08,
    EXT_ECH = 0xfe0d,
    EXT_ESNI = 0xffce,
};

/* Bytes still to be read; `bad` once something asked for more than there was. */
struct span {
    const uint8_t *p;
    size_t n;
    bool bad;
};

static const uint8_t *take(struct span *s, size_t n)
{
    const uint8_t *p = s->p;

    if (s->bad || n > s->n) {
        s->bad = true;
        return NULL;
    }
    s->p += n;
    s->n -= n;
    return p;
}

static unsigned take_uint(struct span *s, size_t bytes)
{
    const uint8_t *p = take(s, bytes);
    unsigned v = 0;

    for (size_t i = 0; p && i < bytes; i++)
        v = v << 8 | p[i];
    return v;
}

/* A vector: its length in `bytes` bytes, then that much. */
static struct span take_vector(struct span *s, size_t bytes)
{
    size_t n = take_uint(s, bytes);
    const uint8_t *p = take(s, n);

    return (struct span){ .p = p, .n = p ? n : 0, .bad = !p };
}

/* Joins the records that hold the hello. HELLO_NO_NAME: `ret` has it, header and all. */
static enum hello join_records(const uint8_t *p, size_t n, uint8_t ret[HELLO_MAX], size_t *ret_len)
{
    size_t have = 0, want = HANDSHAKE_HEADER;

    for (size_t at = 0;;) {
        size_t len, part;

        if (at < n && p[at] != RECORD_HANDSHAKE)
            return HELLO_BAD;
        if (at + 1 < n && p[at + 1] != 3)
            return HELLO_BAD;
        if (at + RECORD_HEADER > n)
            return n < HELLO_MAX ? HELLO_MORE : HELLO_BAD;
        len = (size_t)p[at + 3] << 8 | p[at + 4];
        if (len == 0 || len > RECORD_MAX)
            return HELLO_BAD;
        at += RECORD_HEADER;
        part = len < n - at ? len : n - at;
        memcpy(ret + have, p + at, part);
        have += part;
        at += part;
        if (have >= 1 && ret[0] != CLIENT_HELLO)
            return HELLO_BAD;
        if (have >= HANDSHAKE_HEADER)
            want = HANDSHAKE_HEADER + ((size_t)ret[1] << 16 | (size_t)ret[2] << 8 | ret[3]);
        /* Too long for us in any case; or the record goes on behind the hello, where no client has anything. */
        if (want > HELLO_MAX - RECORD_HEADER ||
            (have >= HANDSHAKE_HEADER && have - part + len > want))
            return HELLO_BAD;
        if (have >= HANDSHAKE_HEADER && have == want) {
            *ret_len = have;
            return HELLO_NO_NAME;
        }
        if (part < len)
            return n < HELLO_MAX ? HELLO_MORE : HELLO_BAD;
    }
}

static bool read_server_name(struct span ext, char ret_name[256])
{
    struct span list = take_vector(&ext, 2), name;
    unsigned kind = take_uint(&list, 1);

    name = take_vector(&list, 2);
    return !list.bad && !list.n && !ext.n && kind == NAME_HOST &&
           net_name((const char *)name.p, name.n, ret_name) == 0;
}

static enum hello read_extensions(struct span all, char ret_name[256])
{
    uint8_t seen[65536 / 8] = { 0 };
    bool named = false, ech = false;

    while (all.n) {
        unsigned type = take_uint(&all, 2);
        struct span ext = take_vector(&all, 2);

        if (ext.bad || (seen[type / 8] & 1 << type % 8))
            return HELLO_BAD;
        seen[type / 8] |= (uint8_t)(1 << type % 8);
        if (type == EXT_SERVER_NAME) {
            if (!read_server_name(ext, ret_name))
                return HELLO_BAD;
            named = true;
        }
        if ((type >= EXT_ECH_FIRST_DRAFT && type <= EXT_ECH) || type == EXT_ESNI)
            ech = true;
    }
    return ech ? HELLO_ECH : named ? HELLO_NAME : HELLO_NO_NAME;
}

static enum hello read_hello(struct span h, char ret_name[256])
{
    struct span session, ciphers, compression, extensions;
    unsigned version = take_uint(&h, 2);

    take(&h, 32);
    session = take_vector(&h, 1);
    ciphers = take_vector(&h, 2);
    compression = take_vector(&h, 1);
    if (h.bad || version >> 8 != 3 || session.n > 32 || ciphers.n < 2 || ciphers.n % 2 ||
        !compression.n)
        return HELLO_BAD;
    if (!h.n) /* before TLS 1.2 there need not be any */
        return HELLO_NO_NAME;
    extensions = take_vector(&h, 2);
    if (h.bad || h.n)
        return HELLO_BAD;
    return read_extensions(extensions, ret_name);
}

enum hello hello_read(const uint8_t *p, size_t n, char ret_name[256])
{
    uint8_t whole[HELLO_MAX];
    enum hello v;
    size_t len;

    ret_name[0] = '\0';
    if (n > HELLO_MAX)
        n = HELLO_MAX;
    v = join_records(p, n, whole, &len);
    if (v != HELLO_NO_NAME)
        return v;
    v = read_hello((struct span){ .p = whole + HANDSHAKE_HEADER, .n = len - HANDSHAKE_HEADER },
                   ret_name);
    if (v != HELLO_NAME && v != HELLO_ECH)
        ret_name[0] = '\0';
    return v;
}
