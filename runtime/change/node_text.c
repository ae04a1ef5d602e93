/* runtime/change/node_text.c - nodes as JSON, extended attributes as text: the written half of node.h. */
#include <string.h>
#include <sys/xattr.h>

#include "runtime/change/node.h"

static void add_hex(struct str *s, const void *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        str_addf(s, "%02x", ((const unsigned char *)p)[i]);
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Bytes of hex digits, NUL-terminated; NULL where it is none. Stops at `end`. */
static char *from_hex(const char *p, const char *end, size_t *ret_n)
{
    size_t n = (size_t)(end - p) / 2;
    AUTOFREE char *out = mem_zalloc(n + 1);

    if ((end - p) % 2)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        int a = hex_digit(p[2 * i]), b = hex_digit(p[2 * i + 1]);
        if (a < 0 || b < 0)
            return NULL;
        out[i] = (char)(a << 4 | b);
    }
    if (ret_n)
        *ret_n = n;
    return TAKE_PTR(out);
}

void node_write_path(struct jsonw *w, const char *key, const char *path)
{
    if (!path || utf8_valid(path, strlen(path))) {
        jw_str(w, key, path);
        return;
    }
    AUTOSTR struct str hex = STR_INIT;
    AUTOFREE char *name = str_printf("%s_hex", key);
    add_hex(&hex, path, strlen(path));
    jw_str(w, name, hex.p);
}

char *node_read_path(const struct json *j, const char *key)
{
    AUTOFREE char *name = str_printf("%s_hex", key);
    const char *plain = json_str(j, key), *hex = json_str(j, name);
    if (plain)
        return str_dup(plain);
    return hex ? from_hex(hex, hex + strlen(hex), NULL) : NULL;
}

void node_write(struct jsonw *w, const char *key, const struct node *n)
{
    jw_obj(w, key);
    jw_str(w, "kind", node_kind_name(n->kind));
    if (n->kind != NODE_NONE) {
        jw_strf(w, "mode", "%04o", n->mode);
        jw_u64(w, "uid", n->uid);
        jw_u64(w, "gid", n->gid);
        jw_u64(w, "size", n->size);
        jw_int(w, "mtime", n->mtime.tv_sec);
        jw_int(w, "mtime_nsec", n->mtime.tv_nsec);
        if (*n->digest)
            jw_str(w, "digest", n->digest);
        if (n->link)
            node_write_path(w, "link", n->link);
        if (n->xattrs)
            jw_str(w, "xattrs", n->xattrs);
        if (n->kind == NODE_FILE)
            jw_u64(w, "at", n->at);
    }
    if (n->foreign)
        jw_bool(w, "foreign", true);
    jw_end_obj(w);
}

static bool read_int(const struct json *j, const char *key, int64_t *ret)
{
    const struct json *v = json_get(j, key);
    char *end;
    if (!v || v->type != JSON_NUMBER)
        return false;
    errno = 0;
    *ret = strtoll(v->string, &end, 10);
    return errno == 0 && *end == '\0';
}

int node_read(const struct json *j, struct node *ret, struct err **e)
{
    CLEANUP(node_free_p) struct node n = { 0 };
    const char *kind = json_str(j, "kind"), *mode = json_str(j, "mode");
    const char *digest = json_str(j, "digest");
    uint64_t uid, gid;
    int64_t sec, nsec;
    int k = NODE_OTHER;

    while (k >= 0 && !(kind && strcmp(kind, node_kind_name((enum node_kind)k)) == 0))
        k--;
    if (k < 0 || k == NODE_OTHER)
        return err_new(e, ERR_CORRUPT, "a file of no known kind");
    n.kind = (enum node_kind)k;
    if (n.kind != NODE_NONE) {
        if (!mode || !json_u64(j, "uid", &uid) || !json_u64(j, "gid", &gid) ||
            !json_u64(j, "size", &n.size) || !read_int(j, "mtime", &sec) ||
            !read_int(j, "mtime_nsec", &nsec) || (digest && strlen(digest) != 64))
            return err_new(e, ERR_CORRUPT, "a file's mode, owner, size, time or digest");
        n.mode = (mode_t)strtoul(mode, NULL, 8) & 07777;
        n.uid = (uid_t)uid;
        n.gid = (gid_t)gid;
        n.mtime = (struct timespec){ .tv_sec = sec, .tv_nsec = nsec };
        if (digest)
            memcpy(n.digest, digest, 64);
        n.link = node_read_path(j, "link");
        n.xattrs = str_dup(json_str(j, "xattrs"));
        (void)json_u64(j, "at", &n.at);
        if ((n.kind == NODE_LINK && !n.link) || (n.kind != NODE_DIR && !digest))
            return err_new(e, ERR_CORRUPT, "a file without a digest or a link without its text");
    }
    n.foreign = json_bool(j, "foreign");
    *ret = n;
    n = (struct node){ 0 };
    return 0;
}

/* --- extended attributes ------------------------------------------------------------------------- */

/* What belongs to the host's file: its ACL (and that of what is made in a directory), its label, what users put there. */
static bool wanted(const char *name)
{
    return strcmp(name, "system.posix_acl_access") == 0 ||
           strcmp(name, "system.posix_acl_default") == 0 || strcmp(name, "security.selinux") == 0 ||
           (str_starts(name, "user.") && !str_starts(name, "user.overlay."));
}

char *node_xattrs(int fd)
{
    AUTOSTR struct str out = STR_INIT;
    char names[65536], value[65536];
    ssize_t n = flistxattr(fd, names, sizeof names);

    for (ssize_t i = 0; i < n; i += (ssize_t)strlen(names + i) + 1) {
        if (!wanted(names + i) || strchr(names + i, '=') || strchr(names + i, '\n') ||
            !utf8_valid(names + i, strlen(names + i)))
            continue;
        ssize_t len = fgetxattr(fd, names + i, value, sizeof value);
        if (len < 0)
            continue;
        str_addf(&out, "%s=", names + i);
        add_hex(&out, value, (size_t)len);
        str_addc(&out, '\n');
    }
    return out.len ? str_take(&out) : NULL;
}

void node_set_xattrs(int fd, const char *text)
{
    while (text && *text) {
        const char *eq = strchr(text, '='), *end = eq ? strchr(eq, '\n') : NULL;
        size_t n = 0;
        if (!end)
            return;
        AUTOFREE char *name = str_printf("%.*s", (int)(eq - text), text);
        AUTOFREE char *value = from_hex(eq + 1, end, &n);
        if (value && wanted(name))
            (void)fsetxattr(fd, name, value, n, 0);
        text = end + 1;
    }
}
