/* base/user.h - accounts from /etc/passwd itself: no name service, so that it works in a static
 * program; an account that only LDAP knows has no name here. */
#pragma once
#include <stdio.h>
#include <sys/types.h>

#include "base/str.h"

struct user {
    char *name, *home, *shell;
    uid_t uid;
    gid_t gid;
};

/* For fgetpwent(), read at once: of a file it would ask where it stands twice for each line. `*ret_text` is to be
 * freed after fclose(); NULL: no table there. */
FILE *user_table(const char *file, char **ret_text);
bool user_by_uid(uid_t uid, struct user *ret);
bool user_by_name(const char *passwd_file, const char *name, struct user *ret);
void user_free_p(struct user *u);
