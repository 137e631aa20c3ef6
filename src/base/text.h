/*
 * Small texts for messages: the known name nearest to a mistyped one, and sizes that a person can read.
 */
#ifndef YOKE_BASE_TEXT_H
#define YOKE_BASE_TEXT_H

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The one of `n` names that `word` was probably meant to be: fewest insertions, deletions, replacements and swaps of
 * neighbours, letters of either case and '-' and '_' being equal; failing that, a name that begins with `word`. The
 * first one wins a tie. NULL if more than a third of the word would have to change.
 */
const char *yoke_text_nearest(const char *word, const char *const *names, int n);

/* Writes "1.2 GiB", "512 B" or the like into buf[n] and returns buf; 16 bytes are enough. */
const char *yoke_text_bytes(double bytes, char *buf, int n);

#ifdef __cplusplus
}
#endif
#endif
