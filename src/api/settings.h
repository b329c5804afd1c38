/* settings.h - the options in force, for programs, reports and `hakmem show-config`. */
#ifndef HAK_API_SETTINGS_H
#define HAK_API_SETTINGS_H

#include "watch/report.h"

/* A report_setting_reader. */
bool settings_read(size_t index, struct report_setting *setting);

/* Prints every option as JSON. False with errno if it could not be written to FD. */
bool settings_print(int fd);

/* If HAKMEM_SHOW_OPTIONS is set, prints them to standard output and ends the process before its main. */
void settings_show(void);

#endif
