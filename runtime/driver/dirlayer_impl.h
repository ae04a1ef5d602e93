/* runtime/driver/dirlayer_impl.h - what the files of the directory layer share. */
#pragma once
#include "runtime/driver/dirlayer.h"

struct dirlayer_spec {
    const char *src;
    const struct ids *ids;
    bool files;         /* copies of the files too; those that not everybody may read are empty */
    bool own;           /* the tree is petri's own: everything in it is copied */
    const char *except; /* a directory at its top whose files stay the host's; NULL: none */
    dev_t skip_dev;     /* petri's own layers, should they lie below src */
    ino_t skip_ino;
};

/* dirlayer_make.c: the layer of src, into the empty directory `out`. */
int dirlayer_make(const struct dirlayer_spec *s, int out, struct err **e);
/* What the layer of src depends on, as one number: its directories near the top and the package
 * database. */
int dirlayer_stamp(const struct dirlayer_spec *s, uint64_t *ret, struct err **e);
