/* tls_plugin.c - 64 bytes of thread-local storage in the initial-exec model, as old graphics drivers
 * and language runtimes have it. tls_dlopen opens twenty copies of this object. */
__attribute__((tls_model("initial-exec"))) __thread char plugin_storage[64] = {1};

char *plugin_address(void);
char *plugin_address(void) { return plugin_storage; }
