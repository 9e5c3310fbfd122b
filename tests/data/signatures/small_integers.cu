extern "C" void solve(char* text, signed char *s, unsigned char const *u, const bool* mask, unsigned short *h, short int i,
                      unsigned long long int big, long l) {
    (void)text;
}
