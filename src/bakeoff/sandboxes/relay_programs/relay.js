// relay.py for a box that has node but no Python: `node relay.js PORT SOCKET`.
// Listens on 127.0.0.1:PORT and passes every connection on to the unix socket, until it is killed.
const net = require('net');

const [port, path] = process.argv.slice(2);
const server = net.createServer({ allowHalfOpen: true }, (near) => {
  const far = net.connect({ path, allowHalfOpen: true });
  for (const [from, to] of [[near, far], [far, near]]) {
    from.on('error', () => to.destroy());
    from.pipe(to);
  }
});
server.listen(Number(port), '127.0.0.1', 128);
