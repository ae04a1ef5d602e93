/* lazyinit CMD...: a PID 1 that waits for its command and for nothing else. What it never reaps is
 * what a probe for zombies must see. */
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int st = 1;
    pid_t pid = argc > 1 ? fork() : -1;

    if (pid == 0) {
        execv(argv[1], argv + 1);
        _exit(127);
    }
    return pid < 0 || waitpid(pid, &st, 0) != pid || st != 0;
}
