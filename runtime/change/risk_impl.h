/* runtime/change/risk_impl.h - between the parts of risk.c. */
#pragma once
#include "runtime/change/risk.h"

/* The components of a path as the least strict file system sees them: in lower case, without characters that
 * HFS+ or a case-folding ext4 skips, without the dots, spaces and streams that NTFS drops; a backslash
 * separates too. */
void risk_fold(const char *path, struct strv *ret);
bool risk_path_fits(const struct risk_rule *rule, const struct strv *parts, bool link);
