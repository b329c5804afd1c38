/* process_start - does nothing and prints nothing: what remains is the cost of starting a process with an
 * allocator preloaded. start_loop measures it. */
int main(void) {
    return 0;
}
