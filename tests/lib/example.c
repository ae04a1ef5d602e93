/* A program that uses a sandbox through libpetri: cc example.c $(pkg-config --cflags --libs petri) */
#include <petri.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    struct petri_error e = PETRI_ERROR_INIT;
    struct petri_exec_options o = PETRI_EXEC_OPTIONS_INIT;
    struct petri_result r = PETRI_RESULT_INIT;
    struct petri_client *c = NULL;
    struct petri_sandbox *s = NULL;
    char *text = NULL;
    size_t n = 0;
    int status = 1;

    o.argv = (const char *const[]){ "sh", "-c", "tr a-z A-Z <note >NOTE; echo done", NULL };
    if (petri_client_new(NULL, &c, &e) == 0 &&
        petri_open(c, argc > 1 ? argv[1] : NULL, NULL, &s, &e) == 0 &&
        petri_fs_write(s, "note", "hello\n", 6, 0, 0, &e) == 0 && petri_exec(s, &o, &r, &e) == 0 &&
        petri_fs_read(s, "NOTE", 0, &text, &n, &e) == 0) {
        printf("%s: %.*s%.*s", petri_name(s), (int)r.out_len, r.out, (int)n, text);
        status = r.status;
    } else {
        fprintf(stderr, "%s: %s\n", e.code, e.message);
    }
    free(text);
    petri_result_free(&r);
    petri_close(s);
    petri_client_free(c);
    return status;
}
