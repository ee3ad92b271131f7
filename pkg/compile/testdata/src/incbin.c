__asm__(".data\n.globl blob\nblob: .incbin \"once.h\"\n.text\n");
