/* cmd/recover.c - a promotion whose process died is finished or taken back by the next command, whichever it is. */
#include <dirent.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/paths.h"
#include "cmd/change.h"

/* Commands that must be quick, or touch nothing, leave it to the others; petri-change does it by itself. */
static bool not_now(const char *name)
{
    static const char *const names[] = {
        "exec", "shell",      "fs",      "cp",   "help", "version",
        "diff", "completion", "promote", "undo", "redo", "history"
    };
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

static bool anything_open(const struct paths *paths)
{
    AUTOFREE char *path = path_join(paths->data, "journal");
    DIR *d = opendir(path);
    struct dirent *de;
    bool found = false;

    while (d && !found && (de = readdir(d)))
        found = str_ends(de->d_name, ".open");
    if (d)
        closedir(d);
    return found;
}

void cmd_recover(const char *name)
{
    CLEANUP(paths_free_p) struct paths paths = { 0 };
    AUTOFREE char *helper = NULL;
    pid_t pid;

    if (not_now(name) || paths_find(&paths, NULL) < 0 || !anything_open(&paths) ||
        !(helper = paths_helper("petri-change", NULL)))
        return;
    pid = fork();
    if (pid == 0) {
        dup2(STDERR_FILENO, STDOUT_FILENO); /* the answer is the command's */
        execl(helper, "petri-change", "recover", paths.data, (char *)NULL);
        _exit(127);
    }
    if (pid > 0)
        (void)RETRY(waitpid(pid, NULL, 0));
}
