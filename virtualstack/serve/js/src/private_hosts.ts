/** Networks and top-level domains that are not public: a copy of `storage/private_hosts.json`, which a test compares. */

export const PRIVATE_HOSTS: Record<string, string[]> = {
  "is loopback": ["127.0.0.0/8", "::1/128"],
  "is link-local": ["169.254.0.0/16", "fe80::/10"],
  "is multicast": ["224.0.0.0/4", "ff00::/8"],
  "is the metadata service of a cloud": ["168.63.129.16/32"],
  "is private": [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "240.0.0.0/4",
    "::/3",
    "2001::/23",
    "2001:db8::/32",
    "2002::/16",
    "3fff::/20",
    "4000::/2",
    "8000::/1"
  ],
  "has a name of a private network": [
    "localhost",
    "local",
    "localdomain",
    "internal",
    "intranet",
    "private",
    "corp",
    "home",
    "lan",
    "arpa"
  ]
};
