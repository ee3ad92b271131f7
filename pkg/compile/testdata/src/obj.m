#import "once.h"
#import "once.h"
__attribute__((objc_root_class)) @interface Thing { int x; }
- (int)value:(int)y;
@end
@implementation Thing
- (int)value:(int)y { return x + y + ONCE; }
@end
