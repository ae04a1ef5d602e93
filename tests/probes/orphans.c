/* orphans N [SECONDS]: leaves N children of its children to PID 1, each of which exits at once; says
 * how many zombies PID 1 has after at most that time (default: 20). At the limit of processes it waits a little: PID 1 may be
 * behind, but must not stay behind. */
#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static int zombies(void)
{
    int n = 0;
    DIR *d = opendir("/proc");
    for (struct dirent *de; d && (de = readdir(d));) {
        char path[300], state;
        int ppid;
        FILE *f;
        if (!isdigit((unsigned char)de->d_name[0]))
            continue;
        snprintf(path, sizeof path, "/proc/%s/stat", de->d_name);
        f = fopen(path, "r");
        if (f && fscanf(f, "%*d (%*[^)]) %c %d", &state, &ppid) == 2)
            n += state == 'Z' && ppid == 1;
        if (f)
            fclose(f);
    }
    closedir(d);
    return n;
}

int main(int argc, char **argv)
{
    int want = argc > 1 ? atoi(argv[1]) : 100, seconds = argc > 2 ? atoi(argv[2]) : 20;
    int made = 0, left = 0;

    puts("STARTED");
    fflush(stdout);
    for (int tries = 0; made < want && tries < want + 1000; tries++) {
        pid_t pid = fork();
        if (pid == 0) {
            pid_t grandchild = fork();
            _exit(grandchild < 0);
        }
        int st = 1;
        if (pid > 0 && waitpid(pid, &st, 0) == pid && st == 0)
            made++;
        else
            usleep(1000);
    }
    for (int i = 0; i < 100 * seconds && (left = zombies()); i++)
        usleep(10000);
    printf("ORPHANED %d ZOMBIES %d\n", made, left);
    return 0;
}
