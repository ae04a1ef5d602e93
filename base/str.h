/* base/str.h - memory that never fails (it aborts), growing strings, string lists, sizes, times. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/macros.h"

void *mem_zalloc(size_t n);
void *mem_dup(const void *p, size_t n);
char *str_dup(const char *s); /* NULL stays NULL */
char *str_printf(const char *fmt, ...) PRINTF_LIKE(1, 2);

/* A growing string; `p` is always NUL-terminated once something was added. */
struct str {
    char *p;
    size_t len, cap;
};
#define STR_INIT                                                                                   \
    {                                                                                              \
        0                                                                                          \
    }
void str_add(struct str *s, const char *text);
void str_addn(struct str *s, const void *p, size_t n);
void str_addc(struct str *s, char c);
void str_addf(struct str *s, const char *fmt, ...) PRINTF_LIKE(2, 3);
char *str_take(struct str *s); /* never NULL */
void str_reset(struct str *s);
static inline void str_free_p(struct str *s)
{
    str_reset(s);
}
#define AUTOSTR CLEANUP(str_free_p)

/* A NULL-terminated list of owned strings: usable as argv and envp. */
struct strv {
    char **v;
    size_t n;
};
void strv_add(struct strv *l, const char *s);
void strv_take(struct strv *l, char *s); /* owns s */
void strv_addf(struct strv *l, const char *fmt, ...) PRINTF_LIKE(2, 3);
bool strv_has(const struct strv *l, const char *s);
/* Sets NAME=VALUE in an environment list; replaces an entry of the same name. */
void strv_setenv(struct strv *l, const char *name, const char *value);
const char *strv_getenv(const struct strv *l, const char *name);
void strv_free_p(struct strv *l);
#define AUTOSTRV CLEANUP(strv_free_p)

bool str_starts(const char *s, const char *prefix);
bool str_ends(const char *s, const char *suffix);
bool str_eq(const char *a, const char *b); /* NULL equals NULL only */
/* FNV-1a, for names and tables, not against who aims at it: `h` is STR_HASH or what came before. */
#define STR_HASH 14695981039346656037ULL
uint64_t str_hash(uint64_t h, const char *s, size_t n);
/* True when `path` is `dir` or lies below it; both absolute and normal. */
bool path_below(const char *path, const char *dir);
/* "a/b" from "a" and "b"; exactly one slash between. */
char *path_join(const char *a, const char *b);

/* "2G", "512M", "1.5G", "2GB", "64k", "1048576": powers of 1024. Rejects "", "-1", "abc", overflow. */
int parse_size(const char *s, uint64_t *ret, struct err **e);
/* "2", "0.5": thousandths of a cpu. */
int parse_cpus(const char *s, uint64_t *ret_milli, struct err **e);
/* "30", "1.5s", "200ms", "10m", "1h", "2d": milliseconds. */
int parse_duration(const char *s, uint64_t *ret_ms, struct err **e);
int parse_uint(const char *s, uint64_t max, uint64_t *ret, struct err **e);
/* "2G", "1.5G", "900": the shortest form parse_size takes back. */
void format_size(uint64_t n, char buf[24]);

/* Text from a sandbox or a file name, safe for a terminal: C0, C1, DEL, bidi and other invisible
 * characters and bytes that are not UTF-8 become visible escapes (\x1b, \u202e). */
void str_add_escaped(struct str *s, const char *text, size_t n);

/* Decodes one UTF-8 character; its length, 0 where the bytes are not valid. */
size_t utf8_decode(const void *p, size_t n, uint32_t *ret);
void str_add_base64(struct str *s, const void *p, size_t n);

/* The candidate nearest to `word` (edit distance at most a third of it), or NULL. */
const char *nearest_word(const char *word, const char *const *candidates, size_t n);
