/* deliver.h - reports that no call asks for: at exit, and on a signal. */
#ifndef HAK_WATCH_DELIVER_H
#define HAK_WATCH_DELIVER_H

#include "watch/report.h"

struct deliver_settings {
    bool wanted;
    enum report_form form;
    const char *path; /* "": the message descriptor. %p in it becomes the process's number */
};

enum { DELIVER_PATH_BYTES = 192 };

/* At start, and whenever the settings change. The path is copied, DELIVER_PATH_BYTES with its 0 at most. */
void deliver_configure(const struct deliver_settings *settings);

/* Writes a report on signal NUMBER, too; once, at start. Prints a line if the program has another use for that signal. */
void deliver_on_signal(int number);

/* Writes the report, if it is wanted. A file that cannot be written gets a line on the message descriptor. */
void deliver(void);

#endif
