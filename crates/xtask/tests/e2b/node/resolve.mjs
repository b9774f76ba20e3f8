// Names below `localhost` are this machine's, which browsers know and Node.js does not.
import dns from 'node:dns'

const { lookup } = dns
dns.lookup = (name, ...rest) => lookup(name.endsWith('.localhost') ? 'localhost' : name, ...rest)
