/* whoami: effective ids and capabilities; what a setuid or file-capability copy of it gains. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(void)
{
    char line[256];
    FILE *f = fopen("/proc/self/status", "r");

    puts("STARTED");
    printf("uid=%d euid=%d egid=%d\n", (int)getuid(), (int)geteuid(), (int)getegid());
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "Cap", 3) == 0)
            fputs(line, stdout);
    return 0;
}
