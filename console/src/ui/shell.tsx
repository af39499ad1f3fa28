import type { ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { LogOut, Menu, X, type LucideIcon } from 'lucide-preact';
import { Link, useLocation } from 'wouter-preact';
import { t } from '../i18n';
import { Logo } from './logo';
import { Preferences } from './preferences';

export interface NavItem {
  href: string;
  label: string;
  icon: LucideIcon;
  /** A number worth noticing, such as unread messages. */
  count?: number;
}

interface ShellProps {
  name: string;
  nav: NavItem[];
  onSignOut(): void;
  children: ComponentChildren;
}

/** The frame around every page: name, navigation, preferences, and the page itself. */
export function Shell({ name, nav, onSignOut, children }: ShellProps) {
  const [location] = useLocation();
  const [open, setOpen] = useState(false);
  useEffect(() => setOpen(false), [location]);
  return (
    <div class="shell">
      {/* A fragment link would change the hash, which is where the router keeps the page. */}
      <button type="button" class="skip" onClick={() => document.getElementById('main')?.focus()}>
        {t('shell.skip')}
      </button>
      <header class="sidebar">
        <div class="brand">
          <Logo />
          <div>
            <div class="brand-name">{t('app.name')}</div>
            <div class="small muted">{name}</div>
          </div>
          <button
            type="button"
            class="button button-quiet menu-button"
            aria-expanded={open}
            aria-controls="menu"
            aria-label={t('shell.menu')}
            onClick={() => setOpen(!open)}
          >
            {open ? <X aria-hidden="true" size={20} /> : <Menu aria-hidden="true" size={20} />}
          </button>
        </div>
        <div id="menu" class={open ? 'menu menu-open' : 'menu'}>
          <nav aria-label={t('shell.nav')}>
            <ul class="nav">
              {nav.map((item) => (
                <li key={item.href}>
                  <NavLink item={item} current={isCurrent(item.href, location)} />
                </li>
              ))}
            </ul>
          </nav>
          <div class="menu-foot">
            <Preferences />
            <button type="button" class="button button-quiet" onClick={onSignOut}>
              <LogOut aria-hidden="true" size={16} />
              {t('shell.signOut')}
            </button>
          </div>
        </div>
      </header>
      <main id="main" tabIndex={-1}>
        {children}
      </main>
    </div>
  );
}

function NavLink({ item, current }: { item: NavItem; current: boolean }) {
  const Icon = item.icon;
  return (
    <Link href={item.href} class="nav-link" aria-current={current ? 'page' : undefined}>
      <Icon aria-hidden="true" size={18} />
      <span>{item.label}</span>
      {item.count !== undefined && item.count > 0 && <span class="nav-count">{item.count}</span>}
    </Link>
  );
}

function isCurrent(href: string, location: string): boolean {
  return href === '/' ? location === '/' : location === href || location.startsWith(`${href}/`);
}
