#include "runtime/change/content.h"

#include <string.h>

#include "runtime/change/hash.h"

int content_read(const struct changeset *c, const struct change *ch, bool new_side, size_t max,
                 char **ret, size_t *ret_len, struct err **e)
{
    const char *kept = new_side ? ch->new_text : ch->old_text;
    uint64_t size = new_side ? ch->new_size : ch->old_size;
    mode_t mode = new_side ? ch->new_mode : ch->old_mode;
    AUTOSTR struct str text = STR_INIT;
    AUTOFREE char *link = NULL;
    AUTOCLOSE int fd = -1;
    char buf[65536], digest[HASH_HEX + 1];
    ssize_t n = 0;
    int rc;

    if (kept && S_ISREG(mode) && size <= max) {
        str_addn(&text, kept, size);
    } else if (S_ISREG(mode) || S_ISLNK(mode)) {
        if ((rc = change_open(c, ch, new_side, &fd, &link, e)) < 0)
            return rc;
        if (link)
            str_add(&text, link);
        while (fd >= 0 && text.len <= max && (n = RETRY(read(fd, buf, sizeof buf))) > 0)
            str_addn(&text, buf, (size_t)n);
        if (n < 0)
            return err_sys(e, "read '%s'", ch->path);
        if (text.len > max)
            return err_new(e, ERR_LIMIT, "'%s' is larger than %zu bytes", ch->path, max);
        /* what is shown and judged is what the change's id stands for; a sandbox at work may have
         * something else there by now */
        hash_text(text.p ? text.p : "", text.len, digest);
        if (new_side && *ch->new_digest && strcmp(digest, ch->new_digest) != 0)
            return err_new(e, ERR_NOT_FOUND, "'%s' changed while it was read", ch->path);
    }
    *ret_len = text.len;
    *ret = str_take(&text);
    return 0;
}

bool content_is_text(const struct change *ch)
{
    return !(ch->flags & (CHANGE_BINARY | CHANGE_UNREADABLE | CHANGE_EMPTY_DIR)) &&
           ch->old_size <= CONTENT_MAX && ch->new_size <= CONTENT_MAX;
}

void content_diff_free_p(struct content_diff *d)
{
    text_diff_free_p(&d->d);
    free(d->old);
    free(d->new);
    *d = (struct content_diff){ 0 };
}

int content_diff(const struct changeset *c, const struct change *ch, struct content_diff *ret,
                 struct err **e)
{
    CLEANUP(content_diff_free_p) struct content_diff d = { 0 };
    size_t a, b;
    int rc;

    if ((rc = content_read(c, ch, false, CONTENT_MAX, &d.old, &a, e)) < 0 ||
        (rc = content_read(c, ch, true, CONTENT_MAX, &d.new, &b, e)) < 0 ||
        (rc = text_diff(d.old, a, d.new, b, 3, &d.d, e)) < 0)
        return rc;
    *ret = d;
    d = (struct content_diff){ 0 };
    return 0;
}

/* A file that is too large for a line diff is scanned piece by piece, with enough of the piece before that
 * nothing hides at a border. */
static int scan_large(const struct changeset *c, const struct change *ch, struct content_found *ret,
                      struct err **e)
{
    enum { KEEP = 256, ROOM = 1 << 18 };
    AUTOFREE char *buf = mem_zalloc(ROOM), *link = NULL;
    AUTOCLOSE int fd = -1;
    size_t have = 0;
    ssize_t n;
    int rc = change_open(c, ch, true, &fd, &link, e);

    if (rc < 0)
        return rc;
    while (fd >= 0 && (n = RETRY(read(fd, buf + have, ROOM - have))) > 0) {
        have += (size_t)n;
        content_scan(buf, have, ret);
        if (have > KEEP) {
            memmove(buf, buf + have - KEEP, KEEP);
            have = KEEP;
        }
    }
    return 0;
}

static uint64_t count_lines(const char *p, size_t n)
{
    uint64_t lines = n > 0 && p[n - 1] != '\n';
    for (const char *nl = p, *end = p + n; nl < end && (nl = memchr(nl, '\n', (size_t)(end - nl)));
         nl++)
        lines++;
    return lines;
}

static bool starts_script(const char *p, size_t n)
{
    return n > 2 && p[0] == '#' && p[1] == '!';
}

int content_count(const struct changeset *c, struct change *ch, struct content_found *ret,
                  struct err **e)
{
    CLEANUP(content_diff_free_p) struct content_diff d = { 0 };
    int rc;

    *ret = (struct content_found){ 0 };
    if (!content_is_text(ch)) {
        bool large = S_ISREG(ch->new_mode) && ch->new_size > CONTENT_MAX;
        return large && !(ch->flags & (CHANGE_BINARY | CHANGE_UNREADABLE))
                   ? scan_large(c, ch, ret, e)
                   : 0;
    }
    if (strcmp(ch->old_digest, ch->new_digest) == 0)
        return 0;
    if ((rc = content_diff(c, ch, &d, e)) < 0)
        return rc;
    ch->lines_added = d.d.added;
    ch->lines_deleted = d.d.deleted;
    for (size_t i = 0; i < d.d.n_lines; i++) {
        const struct text_line *l = &d.d.lines[i];
        const char *p = text_line_p(&d.d, l);
        if (l->origin == '+')
            content_scan(p, l->len, ret);
        if (l->origin != ' ')
            ret->tests += content_tests(p, l->len) * (l->origin == '+' ? 1 : -1);
    }
    ret->old_lines = count_lines(d.d.old, d.d.old_len);
    ret->shebang = S_ISREG(ch->new_mode) && starts_script(d.d.new, d.d.new_len) &&
                   !(S_ISREG(ch->old_mode) && starts_script(d.d.old, d.d.old_len));
    return 0;
}
