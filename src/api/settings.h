/* settings.h - the options in force, for whoever asks: programs, reports, `hakmem show-config`. */
#ifndef HAK_API_SETTINGS_H
#define HAK_API_SETTINGS_H

#include "watch/report.h"

/* A report_setting_reader. */
bool settings_read(size_t index, struct report_setting *setting);

/* Where HAKMEM_SHOW_OPTIONS is set: prints every option as JSON to standard output, and ends the process before its main. */
void settings_show(void);

#endif
