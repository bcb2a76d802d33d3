# relay.py for a box that has Perl but no Python: `perl relay.pl PORT SOCKET`.
# Listens on 127.0.0.1:PORT and passes every connection on to the unix socket, until it is killed.
use strict;
use warnings;
use IO::Select;
use IO::Socket::INET;
use IO::Socket::UNIX;

my ($port, $path) = @ARGV;
my $listening = IO::Socket::INET->new(
    LocalAddr => '127.0.0.1', LocalPort => $port, Proto => 'tcp',
    Listen => 128, ReuseAddr => 1, ReusePort => 1,
) or die "cannot listen: $@\n";
$SIG{CHLD} = 'IGNORE';
while (1) {
    my $near = $listening->accept or next;
    my $pid = fork;
    if (defined $pid && $pid == 0) {
        close $listening;
        my $far = IO::Socket::UNIX->new(Peer => $path) or exit 1;
        pass($near, $far);
        exit 0;
    }
    close $near;
}

sub pass {
    my ($near, $far) = @_;
    my $open = IO::Select->new($near, $far);
    while ($open->count) {
        for my $from ($open->can_read) {
            my $to = $from == $near ? $far : $near;
            my $count = sysread $from, my $piece, 65536;
            if (!$count) {
                $open->remove($from);
                shutdown $to, 1;
                next;
            }
            for (my $sent = 0; $sent < $count;) {
                my $more = syswrite $to, $piece, $count - $sent, $sent;
                return unless defined $more;
                $sent += $more;
            }
        }
    }
}
