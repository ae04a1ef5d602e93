/* runtime/change/undo_choose.c - which operation is undone or redone. */
#include <fcntl.h>
#include <string.h>

#include "base/fs.h"
#include "runtime/change/undo.h"

static struct op *find(struct op *v, size_t n, unsigned number)
{
    for (size_t i = 0; i < n; i++)
        if (v[i].number == number && !v[i].open)
            return &v[i];
    return NULL;
}

static int choose(struct op *v, size_t n, const struct standings *s, bool redo, const char *word,
                  struct standing *ret, struct err **e)
{
    const struct standing *list = redo ? s->undone : s->done, *other = redo ? s->done : s->undone;
    size_t len = redo ? s->n_undone : s->n_done, n_other = redo ? s->n_done : s->n_undone;
    const char *verb = redo ? "redo" : "undo";
    uint64_t id;

    if (!word) {
        if (len == 0)
            return err_new(e, ERR_NOT_FOUND, "nothing to %s in this project (petri history)", verb);
        *ret = list[len - 1];
        return 0;
    }
    if (parse_uint(word, UINT32_MAX, &id, NULL) < 0)
        return err_new(e, ERR_USAGE, "'%.40s' is no number of an operation (petri history)", word);
    for (size_t i = 0; i < len; i++)
        if (list[i].promotion == id) {
            *ret = list[i];
            return 0;
        }
    for (size_t i = 0; i < n_other; i++)
        if (other[i].promotion == id)
            return err_new(e, ERR_EXISTS, "promotion %s is %s already; petri %s takes that back",
                           word, redo ? "in place" : "undone", redo ? "undo" : "redo");
    if (find(v, n, (unsigned)id))
        return err_new(e, ERR_INVALID, "operation %s is itself an undo or redo (petri history)",
                       word);
    return err_new(e, ERR_NOT_FOUND, "no operation %s (petri history)", word);
}

static int open_project(const struct op *o, int *ret_fd, struct err **e)
{
    AUTOCLOSE int fd = open(o->project, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(e, "open the project '%s'", o->project);
    if (st.st_dev != o->dev || st.st_ino != o->ino)
        return err_new(e, ERR_DENIED, "'%s' is another directory than then; nothing was changed",
                       o->project);
    *ret_fd = TAKE_FD(fd);
    return 0;
}

/* The project that was meant: that of the operation named, else the one here. */
static int which_project(const struct journal *j, const char *word, dev_t *ret_dev, ino_t *ret_ino,
                         struct err **e)
{
    struct op *v = NULL;
    size_t n = 0;
    uint64_t id;
    int rc = journal_list(j, 0, 0, &v, &n, e);
    const struct op *named = rc == 0 && word && parse_uint(word, UINT32_MAX, &id, NULL) == 0
                                 ? find(v, n, (unsigned)id)
                                 : NULL;

    if (named) {
        *ret_dev = named->dev;
        *ret_ino = named->ino;
    } else if (rc == 0) {
        rc = undo_here(v, n, ret_dev, ret_ino, e);
    }
    ops_free(v, n);
    return rc;
}

int undo_choose(const struct journal *j, const char *word, bool redo, struct op *ret_last,
                unsigned *ret_promotion, int *ret_root, struct err **e)
{
    CLEANUP(standings_free_p) struct standings s = { 0 };
    struct standing which = { 0 };
    struct op *v = NULL, *last = NULL;
    size_t n = 0;
    dev_t dev;
    ino_t ino;
    int rc = which_project(j, word, &dev, &ino, e);

    if (rc < 0 || (rc = journal_list(j, dev, ino, &v, &n, e)) < 0)
        return rc;
    standings_make(v, n, &s);
    rc = choose(v, n, &s, redo, word, &which, e);
    if (rc == 0 && !(last = find(v, n, which.last)))
        rc = err_new(e, ERR_NOT_FOUND, "operation %u is no longer in the journal", which.last);
    if (rc == 0)
        rc = open_project(last, ret_root, e);
    if (rc == 0) {
        *ret_promotion = which.promotion;
        *ret_last = *last;
        *last = (struct op){ 0 };
    }
    ops_free(v, n);
    return rc;
}
