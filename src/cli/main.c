/*
 * yoke, the program: see dispatch.c.
 */
#include "cli/command.h"

int main(int argc, char **argv)
{
    return yoke_dispatch(argc, argv);
}
