// What LLVM's Support library asks terminfo: whether a terminal shows colours. The library writes to none, so the
// answer is that there is no terminal, and libattnc.so does without libtinfo. LLVM asks for these from 14 to 18.
extern "C" {

int setupterm(char*, int, int*) { return -1; }
void* set_curterm(void*) { return nullptr; }
int del_curterm(void*) { return 0; }
int tigetnum(char*) { return -1; }

} // extern "C"
