/* served.h - proof for the launcher that this process's malloc is hakmem's. */
#ifndef HAK_WATCH_SERVED_H
#define HAK_WATCH_SERVED_H

/* When HAKMEM_PROOF names a file and the process is not privileged, appends the line "<pid> served", or
 * "<pid> other <path>" when malloc belongs to another object. */
void served_report(void);

#endif
