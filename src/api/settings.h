/* settings.h - the options in force, for whoever asks: programs, reports, `hakmem show-config`. */
#ifndef HAK_API_SETTINGS_H
#define HAK_API_SETTINGS_H

#include "watch/report.h"

/* A report_setting_reader. */
bool settings_read(size_t index, struct report_setting *setting);

/* Prints every option as JSON. False if FD would not take it: errno. */
bool settings_print(int fd);

/* Where HAKMEM_SHOW_OPTIONS is set: prints them to standard output, and ends the process before its main. */
void settings_show(void);

#endif
