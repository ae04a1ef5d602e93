/* tests/unit/check.h - the whole test framework: a counter, a macro, a scratch directory.
 * A test is a plain program: every failed check prints one line, main returns check_done().
 */
#pragma once
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/macros.h"

static int check_failed, check_count;

#define CHECK(cond, ...)                                                                           \
    do {                                                                                           \
        check_count++;                                                                             \
        if (!(cond)) {                                                                             \
            check_failed++;                                                                        \
            fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #cond);                             \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fputc('\n', stderr);                                                                   \
        }                                                                                          \
    } while (0)

/* Two strings, either of which may be NULL. */
#define CHECK_STR(got, want)                                                                       \
    do {                                                                                           \
        const char *g_ = (got), *w_ = (want);                                                      \
        CHECK(g_ &&w_ ? strcmp(g_, w_) == 0 : g_ == w_, "got '%s', want '%s'", g_ ? g_ : "(null)", \
              w_ ? w_ : "(null)");                                                                 \
    } while (0)

static inline int check_done(void)
{
    if (check_failed)
        fprintf(stderr, "%d of %d checks failed\n", check_failed, check_count);
    return check_failed || !check_count;
}

/* Changes into an empty directory on a real disk; check_scratch_end() removes it with all below. */
static char check_dir[64];
static inline void check_scratch(void)
{
    strcpy(check_dir, "/var/tmp/petri-unit-XXXXXX");
    if (!mkdtemp(check_dir) || chdir(check_dir) < 0) {
        perror(check_dir);
        exit(1);
    }
}

static inline void check_scratch_end(void)
{
    char cmd[192];
    snprintf(cmd, sizeof cmd, "chmod -R u+rwx %s; rm -rf %s", check_dir, check_dir);
    if (chdir("/") < 0 || system(cmd) != 0)
        check_failed++;
}
