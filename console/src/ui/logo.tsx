import url from '../logo.svg';

export function Logo() {
  return <img class="logo" src={url} alt="" width={32} height={32} />;
}
