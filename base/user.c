#include "base/user.h"

#include <fcntl.h>
#include <pwd.h>
#include <string.h>

#include "base/fs.h"

enum { MAX_TABLE = 64 << 20 };

FILE *user_table(const char *file, char **ret_text)
{
    size_t n = 0;

    if (fs_read(AT_FDCWD, file, MAX_TABLE, ret_text, &n, NULL) < 0 || n == 0)
        return NULL;
    return fmemopen(*ret_text, n, "r");
}

static bool find(const char *file, const char *name, uid_t uid, struct user *ret)
{
    AUTOFREE char *text = NULL;
    FILE *f = user_table(file, &text);
    struct passwd *pw;
    bool found = false;

    while (f && !found && (pw = fgetpwent(f))) {
        found = name ? strcmp(pw->pw_name, name) == 0 : pw->pw_uid == uid;
        if (found)
            *ret = (struct user){ .name = str_dup(pw->pw_name),
                                  .home = str_dup(pw->pw_dir),
                                  .shell = str_dup(pw->pw_shell),
                                  .uid = pw->pw_uid,
                                  .gid = pw->pw_gid };
    }
    if (f)
        fclose(f);
    return found;
}

bool user_by_uid(uid_t uid, struct user *ret)
{
    return find("/etc/passwd", NULL, uid, ret);
}

bool user_by_name(const char *passwd_file, const char *name, struct user *ret)
{
    return find(passwd_file, name, 0, ret);
}

void user_free_p(struct user *u)
{
    free(u->name);
    free(u->home);
    free(u->shell);
    *u = (struct user){ 0 };
}
