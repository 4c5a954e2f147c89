// progress.h: one line on stderr while long work runs; nothing unless stderr is a terminal.
#ifndef PROGRESS_H
#define PROGRESS_H

// Shows "label  done/total", once a second has passed since the first call of this label, and at
// most ten times a second. progress_done clears the line.
void progress(const char *label, int done, int total);
void progress_done(void);

#endif
