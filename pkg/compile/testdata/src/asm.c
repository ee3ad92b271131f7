__asm__(".section .note.GNU-stack,\"\",@progbits\n.text\n");
int swap(int x) { __asm__ volatile("bswap %0" : "+r"(x)); return x; }
