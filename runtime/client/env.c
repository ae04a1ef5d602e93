#include "runtime/client/env.h"

#include <fcntl.h>
#include <string.h>

#include "base/fs.h"

static int set_one(const char *word, struct strv *ret, struct err **e)
{
    size_t n = strcspn(word, "=");
    AUTOFREE char *name = str_printf("%.*s", (int)n, word);

    if (!n)
        return err_new(e, ERR_INVALID,
                       "-e '%s': write it as NAME=VALUE, or NAME to pass the host's", word);
    if (word[n])
        strv_setenv(ret, name, word + n + 1);
    else if (getenv(name))
        strv_setenv(ret, name, getenv(name));
    return 0;
}

static int read_file(const char *file, struct strv *ret, struct err **e)
{
    AUTOFREE char *text = NULL;
    int rc = fs_read(AT_FDCWD, file, 1 << 20, &text, NULL, e);

    for (char *save = NULL, *l = rc < 0 ? NULL : strtok_r(text, "\n", &save); l && rc == 0;
         l = strtok_r(NULL, "\n", &save)) {
        l += strspn(l, " \t");
        l[strcspn(l, "\r")] = '\0';
        if (*l && *l != '#')
            rc = set_one(l, ret, e);
    }
    return rc < 0 ? err_wrap(e, "--env-file '%s'", file) : 0;
}

int env_take(const struct strv *files, const struct strv *words, struct strv *ret, struct err **e)
{
    int rc = 0;
    for (size_t i = 0; i < files->n && rc == 0; i++)
        rc = read_file(files->v[i], ret, e);
    for (size_t i = 0; i < words->n && rc == 0; i++)
        rc = set_one(words->v[i], ret, e);
    return rc;
}
