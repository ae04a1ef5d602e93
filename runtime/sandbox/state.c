#include "runtime/sandbox/state.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#include "base/fs.h"
#include "base/json.h"
#include "runtime/driver/inside.h"

static char *dir_of(const struct paths *paths, const char *id)
{
    return str_printf("%s/sandboxes/%s", paths->data, id);
}

static int take_lock(const char *dir, int *ret)
{
    AUTOFREE char *path = path_join(dir, "lock");
    AUTOCLOSE int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
        return -1;
    *ret = TAKE_FD(fd);
    return 0;
}

int state_create(const struct paths *paths, const struct plan *p, int *ret_lock, struct err **e)
{
    AUTOFREE char *top = path_join(paths->data, "sandboxes"), *dir = dir_of(paths, p->id);
    AUTOFREE char *files = path_join(dir, "files"), *new = str_printf("%s/.new-%s", top, p->id);
    struct state *all = NULL;
    size_t n = 0;
    bool taken = false;
    int rc;

    if ((rc = fs_mkdirs(top, 0700, e)) < 0)
        return rc;
    if (p->name && p->keep) {
        if ((rc = state_list(paths, &all, &n, e)) < 0)
            return rc;
        for (size_t i = 0; i < n; i++) {
            taken |= str_eq(all[i].name, p->name);
            state_free_p(&all[i]);
        }
        free(all);
        if (taken)
            return err_new(e, ERR_EXISTS,
                           "--name '%s' is taken by another sandbox; see petri ls, or petri rm %s",
                           p->name, p->name);
    }
    /* locked before it has its name: a sweep never sees one that is not */
    if (mkdir(new, 0700) < 0)
        return err_sys(e, "make '%s'", new);
    if (take_lock(new, ret_lock) < 0)
        return err_sys(e, "lock '%s'", new);
    if (rename(new, dir) < 0)
        return err_sys(e, "make '%s'", dir);
    /* the sandbox's root must get through to files/, the directories above stay closed to others */
    if (mkdir(files, 0755) < 0)
        return err_sys(e, "make '%s'", files);
    return 0;
}

int state_keep(const struct paths *paths, const struct plan *p, const struct ids *ids, int status,
               struct err **e)
{
    static const char *const modes[] = { "overlay", "copy", "bind" };
    AUTOFREE char *dir = dir_of(paths, p->id), *path = path_join(dir, "state.json");
    AUTOJSONW struct jsonw w = { .pretty = true };
    char when[32];
    time_t now = time(NULL);
    struct tm tm;

    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &tm));
    jw_obj(&w, NULL);
    jw_int(&w, "schema", STATE_SCHEMA);
    jw_str(&w, "id", p->id);
    jw_str(&w, "name", p->name);
    jw_str(&w, "created", when);
    jw_str(&w, "image", p->image);
    jw_str(&w, "project", p->project);
    jw_u64(&w, "project_dev", p->project_dev);
    jw_u64(&w, "project_ino", p->project_ino);
    jw_str(&w, "workspace_mode", modes[p->mode]);
    jw_u64(&w, "uid", p->uid);
    jw_u64(&w, "gid", p->gid);
    jw_str(&w, "ids", ids_mode_name(ids->mode));
    jw_u64(&w, "root_uid", ids->root_uid);
    jw_strv(&w, "labels", &p->labels);
    jw_strv(&w, "hide", &p->hide);
    jw_strv(&w, "argv", &p->argv);
    jw_str(&w, "upper", "files/u0");
    jw_int(&w, "exit_status", status);
    jw_end_obj(&w);
    str_addc(&w.out, '\n');
    return fs_write_atomic(AT_FDCWD, path, w.out.p, w.out.len, 0600, e);
}

int state_remove(const struct paths *paths, const char *id, struct err **e)
{
    AUTOFREE char *dir = dir_of(paths, id), *record = path_join(dir, "state.json");
    /* the record first: without it a half-removed sandbox is garbage that the next sweep takes */
    if (unlink(record) < 0 && errno != ENOENT)
        return err_sys(e, "remove '%s'", record);
    return inside_remove(dir, e);
}

static DIR *open_top(const struct paths *paths)
{
    AUTOFREE char *top = path_join(paths->data, "sandboxes");
    return opendir(top);
}

void state_sweep(const struct paths *paths)
{
    DIR *d = open_top(paths);
    struct dirent *de;

    while (d && (de = readdir(d))) {
        AUTOFREE char *dir = dir_of(paths, de->d_name), *record = path_join(dir, "state.json");
        AUTOCLOSE int lock = -1;
        struct stat st;
        bool new = str_starts(de->d_name, ".new-");
        if ((de->d_name[0] == '.' && !new) || fs_exists(record) || take_lock(dir, &lock) < 0)
            continue;
        /* one without its name may be locked the next moment; it has had a minute for that */
        if (!new || (stat(dir, &st) == 0 && time(NULL) - st.st_mtime > 60))
            (void)inside_remove(dir, NULL);
    }
    if (d)
        closedir(d);
}

void state_free_p(struct state *s)
{
    free(s->id);
    free(s->name);
    free(s->project);
    free(s->image);
    free(s->created);
    *s = (struct state){ 0 };
}

static bool read_state(const char *dir, struct state *ret)
{
    AUTOFREE char *path = path_join(dir, "state.json"), *text = NULL;
    AUTOJSON struct json *j = NULL;
    AUTOCLOSE int lock = -1;
    uint64_t status = 0;
    size_t n;

    if (fs_read(AT_FDCWD, path, 1 << 20, &text, &n, NULL) < 0 ||
        json_parse(text, n, &j, NULL) < 0 || !json_str(j, "id"))
        return false;
    json_u64(j, "exit_status", &status);
    *ret = (struct state){ .id = str_dup(json_str(j, "id")),
                           .name = str_dup(json_str(j, "name")),
                           .project = str_dup(json_str(j, "project")),
                           .image = str_dup(json_str(j, "image")),
                           .created = str_dup(json_str(j, "created")),
                           .exit_status = (int64_t)status,
                           .running = take_lock(dir, &lock) < 0 };
    return true;
}

int state_list(const struct paths *paths, struct state **ret, size_t *ret_n, struct err **e)
{
    DIR *d = open_top(paths);
    struct dirent *de;
    struct state *v = NULL;
    size_t n = 0;

    while (d && (de = readdir(d))) {
        AUTOFREE char *dir = dir_of(paths, de->d_name);
        struct state s;
        if (de->d_name[0] == '.' || !read_state(dir, &s))
            continue;
        v = realloc(v, (n + 1) * sizeof *v);
        if (!v)
            abort();
        v[n++] = s;
    }
    if (d)
        closedir(d);
    *ret = v;
    *ret_n = n;
    return 0;
}
