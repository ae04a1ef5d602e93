/* tests/bench/draw.h - what one exec is asked to do, drawn anew for each: an argument, a variable, some
 * stdin and an exit status; and what `probe echo` must then print. For timeit.c, client.c and probe.c.
 */
#pragma once
#include <stdint.h>
#include <stdio.h>
#include <sys/random.h>

enum { DRAW_TOKEN = 24, DRAW_STDIN = 2048 };

struct draw {
    char arg[DRAW_TOKEN + 1], env[DRAW_TOKEN + 1];
    char status_text[4];
    int status;
    unsigned char in[DRAW_STDIN];
    size_t in_len;
    char expected[128]; /* stdout */
};

static inline uint64_t draw_hash(const unsigned char *p, size_t n)
{
    uint64_t h = 14695981039346656037ULL;
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 1099511628211ULL;
    return h;
}

static inline void draw_text(char *out, size_t size, const char *arg, const char *env,
                             const unsigned char *in, size_t n)
{
    snprintf(out, size, "arg=%s env=%s in=%zu:%016llx\n", arg, env, n,
             (unsigned long long)draw_hash(in, n));
}

/* 0, or -1 where the kernel has no random bytes. */
static inline int draw_new(struct draw *d)
{
    unsigned char raw[2 * DRAW_TOKEN + 4];

    if (getrandom(raw, sizeof raw, 0) != (ssize_t)sizeof raw)
        return -1;
    for (int i = 0; i < DRAW_TOKEN; i++) {
        d->arg[i] = (char)('a' + raw[i] % 26);
        d->env[i] = (char)('a' + raw[DRAW_TOKEN + i] % 26);
    }
    d->arg[DRAW_TOKEN] = d->env[DRAW_TOKEN] = '\0';
    d->status = raw[2 * DRAW_TOKEN] % 100;
    snprintf(d->status_text, sizeof d->status_text, "%d", d->status % 100);
    d->in_len = (raw[2 * DRAW_TOKEN + 1] << 8 | raw[2 * DRAW_TOKEN + 2]) % (DRAW_STDIN + 1);
    for (size_t at = 0; at < d->in_len; at += 256) {
        size_t n = d->in_len - at < 256 ? d->in_len - at : 256;
        if (getrandom(d->in + at, n, 0) != (ssize_t)n)
            return -1;
    }
    draw_text(d->expected, sizeof d->expected, d->arg, d->env, d->in, d->in_len);
    return 0;
}
