/* thread_local_plugin.c - 64 bytes of thread-local storage that need no place at the program's start. many_tls opens many
 * copies of this object. */
__thread char plugin_storage[64] = {1};
